"""Predicted bytes and memory of a call by holders are the counted ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.runtime.test_holders import AGGREGATIONS, ANNOUNCES, COMMUNICATIONS, ranks_of
from tests.support.fuzz import tried
from tests.support.holder_bytes import weigh_by_holders
from tests.support.local import run_all
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.memory_model import BUFFERS, MemoryModel
from zenc.gradients.index_sets import gradients
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter
from zenc.topology.shapes import ring
from zenc.verify.proof import prove


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


UNITS, WIDTH = 6_000, 3


def expected(plan: Plan, size: int, density: float) -> list[dict[str, int]]:
    """Return the bytes of each rank's buffers when the call has ended."""
    rounds = expand(plan, size)
    ledger = MemoryModel(plan, rounds, expected_bytes(plan, size, GradientSpec(UNITS, WIDTH, "f32", density)))
    prove(plan, rounds, ledger.observe)
    ledger.capacity(ring(size))
    assert ledger.sets is not None
    ends = zip(ledger.held.tolist(), ledger.sets.held.tolist(), strict=True)
    return [{"segments": segments, "index_sets": sets} for segments, sets in ends]


@pytest.mark.parametrize("density", [0.02, 0.3, 1.0])
@pytest.mark.parametrize(
    ("size", "communication", "aggregation"),
    [
        (1, "point_to_point", "incremental"),
        (2, "ring", "incremental"),
        (5, "point_to_point then ring", "incremental"),
        (6, "hierarchy", "one_shot"),
    ],
)
def test_index_sets_and_rows(
    size: int, communication: str, aggregation: str, density: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, tuple[int, int]] = {}
    expand = HolderInterpreter.expand_units

    def watched(self: HolderInterpreter) -> tuple[torch.Tensor, torch.Tensor]:
        agreed, words = self.agreed, -(-UNITS // 64) * 8
        sets = size * words + sum(each.nbytes for each in (agreed.any, agreed._owners, agreed._arena))
        rows = sum(rows.count for rows in self.held.values())
        found[self.program.rank] = sets, (self.own.count + rows) * WIDTH * 4
        return expand(self)

    monkeypatch.setattr(HolderInterpreter, "expand_units", watched)
    ranks = ranks_of(size, communication, aggregation)
    rng = np.random.default_rng(size)
    inputs = []
    for _ in range(size):
        ids = np.sort(rng.choice(UNITS, round(UNITS * density), replace=False))
        values = torch.ones(len(ids), WIDTH)
        inputs.append(
            torch.sparse_coo_tensor(torch.from_numpy(ids)[None], values, (UNITS, WIDTH), check_invariants=True)
        )
    run_all(ranks, inputs)
    for rank, buffers in enumerate(expected(ranks[0].artifact.plan, size, density)):
        sets, rows = found[rank]
        assert buffers["index_sets"] == pytest.approx(sets, rel=0.06, abs=8 * size)
        assert buffers["segments"] == pytest.approx(rows, rel=0.06)


def test_sets_are_part_of_what_a_rank_needs() -> None:
    plan = ranks_of(4, "point_to_point then ring", "incremental")[0].artifact.plan
    rounds = expand(plan, 4)
    ledger = MemoryModel(plan, rounds, expected_bytes(plan, 4, GradientSpec(6_400, 2, "f32", 0.5)))
    prove(plan, rounds, ledger.observe)
    need = ledger.capacity(ring(4)).needs[0]
    present = 6_000  # 6,400 * (1 - 0.5^4)
    buffers = dict(zip(BUFFERS, need.buffers, strict=True))
    assert buffers["index_sets"] == 5 * 800 + 2 * present + 4 * 24 * 8  # the part that is summed here has 1,500 slots
    assert "index sets 16.77 kB" in need.text()
