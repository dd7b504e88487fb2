"""Trees by holders: what a rank owns is cut in parts, which follow each other through trees."""

from functools import partial

import pytest
import torch

import zenc
from tests.support.cases import DTYPES, KINDS, dense_tensor, same_bits, same_units, sparse_tensor
from tests.support.exact import miscounted, positive
from tests.support.local import faults_of, ranks_of, run_all, run_each, sums
from tests.support.refusals import refusals
from zenc.analysis.expected_bytes import ExpectedBytes
from zenc.gradients.profile_generators import uniform
from zenc.plan.from_json import plan_from_json
from zenc.plan.ir import VALUE_KINDS
from zenc.simulator.contributor_counts import play
from zenc.simulator.symmetry import messages


def text(size: int, chunks: int, more: str = "") -> str:
    """Return trees of depth 2, or 1 among two ranks: a root leads to the next rank, and that one to all others."""
    others = ", ".join(f"(rank + {k}) mod {size}" for k in range(2, size))
    last = f"branch (rank + 1) mod {size} -> {others}" if others else ""
    return f"""scheme trees {{
        communication: grown aggregation: incremental partition: parallelism({chunks})
        balance: balanced by holders {more}
    }}
    schedule grown {{ trees({chunks}) {{
        tree parts rank * {chunks} .. rank * {chunks} + {chunks - 1} {{
            branch rank -> (rank + 1) mod {size} {last}
        }}
    }} }}"""


@pytest.mark.parametrize("size", range(2, 7))
def test_sums_and_bytes_are_exact(size: int) -> None:
    ranks = ranks_of(text(size, 1 + size % 4), size, "trees")
    for turn, kind in enumerate(KINDS):
        case = (1, 63, 500)[turn % 3], (1, 5)[turn % 2], DTYPES[turn % 4], turn
        inputs = [positive(sparse_tensor(kind, rank, size, *case)) for rank in range(size)]
        assert same_units(sums(ranks, inputs), inputs)
        assert miscounted(ranks[0].artifact.plan, inputs, [rank.stats for rank in ranks]) == []
    dense = [dense_tensor("random", rank, size, 41, 3, torch.float32, 1) for rank in range(size)]
    assert faults_of(ranks, dense) == []


def test_a_flowing_program_has_the_bits_of_one_that_goes_step_by_step(nine) -> None:
    """Over connections and shared memory it flows, over gloo it does not; sums are right in both."""
    found = nine.run("tests.runtime.jobs:combinations", size=5, texts=[text(5, 3), text(5, 1)], turn=4, scheme="trees")
    assert all(each == found[0] for each in found)


def test_rows_may_be_announced() -> None:
    ranks = ranks_of(text(3, 2), 3, "trees")
    inputs = [sparse_tensor("random", rank, 3, 90, 4, torch.float32, 5).coalesce() for rank in range(3)]
    wanted = run_all(ranks, inputs)
    ids = [each.indices()[0] for each in inputs]
    told = run_each([partial(rank.announce, shape=inputs[0].shape) for rank in ranks], ids)
    calls = [partial(rank.all_reduce, announced=each) for rank, each in zip(ranks, told, strict=True)]
    assert same_bits([wanted[0], *run_each(calls, inputs)])


def test_predicted_bytes_are_those_of_uncut_owners() -> None:
    """Every part weighs as much less as there are more of them; each message has a header."""
    totals = []
    for chunks in (1, 4):
        plan = zenc.compile_text(text(4, chunks), ranks=4, scheme="trees", target="plan").plan
        expected = ExpectedBytes(plan, 4, uniform(0.02, 200_000, 64))
        steps = [step for step in play(plan, 4) if step.phase.kind in VALUE_KINDS]
        totals.append(sum(float(bytes.sum()) for step in steps for *_, bytes in messages(expected, step)))
    assert totals[1] == pytest.approx(totals[0], rel=1e-3)


TIERED = f"scheme two {{ tier box(2): dense_ring tier cluster: trees }} {text(2, 2)}"


@pytest.mark.parametrize(
    ("id", "given", "scheme", "target"),
    [
        ("not-with-holders", text(4, 2, "announce: directory"), "trees", "plan"),
        ("not-with-holders", TIERED, "two", "plan"),
        ("owners-in-a-tier", text(4, 2), "trees", "cuda"),
        ("owners-in-a-tier", text(4, 20_000).replace("trees(20000)", "trees(1)"), "trees", "plan"),
    ],
)
def test_where_owners_are_not_cut(id: str, given: str, scheme: str, target: str) -> None:
    refused = refusals(zenc.ZencError, zenc.compile_text, given, ranks=4, scheme=scheme, target=target)
    assert id in {each.id for each in refused}


def test_a_plan_that_cuts_owners_is_read_back() -> None:
    plan = zenc.compile_text(text(3, 2), ranks=3, scheme="trees", target="plan").plan
    data = plan.to_json()
    assert plan_from_json(data).digest == plan.digest
    data["mapping"] = {**data["mapping"], "directory": 2}
    with pytest.raises(zenc.ZencError):
        plan_from_json(data)
