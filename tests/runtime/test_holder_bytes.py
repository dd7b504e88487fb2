"""Predicted bytes of a call by holders equal the counted ones."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.test_holders import AGGREGATIONS, ANNOUNCES, COMMUNICATIONS, ranks_of
from tests.support.fuzz import tried
from tests.support.holder_bytes import weigh_by_holders
from tests.support.local import run_all
from zenc.analysis.exact_traffic import weigh
from zenc.gradients.index_sets import gradients
from zenc.plan.unroll import expand


@settings(max_examples=tried(60), deadline=None)
@given(
    communication=st.sampled_from(COMMUNICATIONS),
    aggregation=st.sampled_from(AGGREGATIONS),
    announce=st.sampled_from(ANNOUNCES),
    size=st.integers(1, 9),
    units=st.integers(1, 400),
    width=st.integers(1, 40),
    density=st.floats(0, 1),
    seed=st.integers(0, 2**32),
)
def test_bytes_and_messages_are_those_predicted(
    communication, aggregation, announce, size, units, width, density, seed
):
    rng = np.random.default_rng(seed)
    held = [np.flatnonzero(rng.random(units) < density * rng.random()) for _ in range(size)]
    ranks = ranks_of(size, communication, aggregation, announce)
    run_all(ranks, [gradient(ids, units, width) for ids in held])
    plan = ranks[0].artifact.plan
    rounds = weigh_by_holders(plan, units, width * 4, held)
    predicted = weigh(plan, expand(plan, size), gradients(units, width, "f32", held)).traffic
    for rank, collective in enumerate(ranks):
        for kind in predicted if plan.by_directory(size) else ("announce", "push", "pull"):
            of_kind = [round_ for round_ in rounds if round_.kind == kind]
            sent = [int(size) for r in of_kind for size in r.bytes[r.src == rank]]
            received = [int(size) for r in of_kind for size in r.bytes[r.dst == rank]]
            counted = collective.stats["phases"][kind]
            assert (counted["bytes_sent"], counted["messages_sent"]) == (sum(sent), len(sent))
            assert (counted["bytes_received"], counted["messages_received"]) == (sum(received), len(received))
            for name, value in predicted[kind].of_rank(rank).items():
                found = counted[name]
                assert value == ({k: n for k, n in found.items() if n} if isinstance(found, dict) else found)


def gradient(ids: np.ndarray, units: int, width: int) -> torch.Tensor:
    values = torch.ones(len(ids), width)
    return torch.sparse_coo_tensor(torch.from_numpy(ids)[None], values, (units, width), check_invariants=False)
