"""Tiers whose outermost one has its own owners: sums, and bytes to the byte."""

from concurrent.futures import ThreadPoolExecutor
from math import prod

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.test_holders import BY_HOLDERS, scheme
from tests.support import drawn
from tests.support.cases import FILLING, INNER, same_units, scheme_text, sparse_tensor
from tests.support.drawn import FORMAT, OP
from tests.support.fuzz import tried
from tests.support.holder_bytes import weigh_by_holders
from tests.support.local import collectives, ranks_of, run_all, sums
from tests.support.packets import Damage, flipped
from zenc.analysis.exact_traffic import weigh
from zenc.analysis.expected_bytes import expected_bytes
from zenc.analysis.memory_model import BUFFERS, MemoryModel
from zenc.errors import SynchronisationError, ZencError
from zenc.gradients.index_sets import gradients
from zenc.gradients.spec import GradientSpec
from zenc.plan.ir import Plan
from zenc.plan.unroll import expand
from zenc.runtime.cpu.holder_interpreter import HolderInterpreter
from zenc.topology.shapes import ring
from zenc.verify.proof import prove

SIZES = ((1, 1), (1, 3), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2), (2, 4), (2, 2, 2))
"""Members of each tier: 1 to 8 ranks in all."""
HASHED = ("point_to_point", "incremental", "partition: parallelism balance: balanced by hierarchical_hash(2)")
INSIDE = (*INNER, HASHED)
OWNERS = (
    ("point_to_point", "incremental", ""),
    ("ring", "one_shot", "announce: ring"),
    ("hierarchy then ring", "incremental", "announce: directory"),
    ("point_to_point", "one_shot", "announce: directory(from = 3) by ring"),
)
"""Outermost tiers: communication, aggregation and announce."""


def owners_text(sizes: tuple[int, ...], inner: tuple[str, ...], owners: tuple[str, str, str]) -> str:
    communication, aggregation, announce = owners
    lines = " ".join(f"tier level_{k}({size}): inner" for k, size in enumerate(sizes[:-1]))
    return (
        f"{scheme_text(*inner).replace('combination', 'inner', 1)} scheme owners {{ communication: {communication} "
        f"aggregation: {aggregation} partition: parallelism balance: balanced by holders {announce} }} "
        f"scheme tiered {{ {lines} tier top: owners }}"
    )


def of_tiers(sizes: tuple[int, ...], inner: tuple[str, ...], owners: tuple[str, str, str]) -> list[zenc.Collective]:
    return ranks_of(owners_text(sizes, inner, owners), prod(sizes), "tiered")


@settings(max_examples=tried(40), deadline=None)
@given(st.data(), st.sampled_from(SIZES), st.sampled_from(INSIDE), FORMAT, FORMAT, st.sampled_from(OWNERS), OP)
def test_any_tiers_with_any_input(data, sizes, inner, push, pull, owners, op):
    inputs = data.draw(drawn.gradients(prod(sizes)))
    results = sums(of_tiers(sizes, (*inner, push, pull), owners), inputs, op)
    if inputs[0].is_sparse and not {push, pull} & set(FILLING):
        assert same_units(results, inputs)


@settings(max_examples=tried(30), deadline=None)
@given(sizes=st.sampled_from(SIZES), inner=st.sampled_from(INSIDE), owners=st.sampled_from(OWNERS),
       push=st.sampled_from(["auto", "block(8)", "dense"]), units=st.integers(1, 400), width=st.integers(1, 40),
       density=st.floats(0, 1),
       seed=st.integers(0, 2**32))  # fmt: skip
def test_bytes_and_messages_are_those_predicted(sizes, inner, owners, push, units, width, density, seed):
    rng, size = np.random.default_rng(seed), prod(sizes)
    held = [np.flatnonzero(rng.random(units) < density * rng.random()) for _ in range(size)]
    ranks = of_tiers(sizes, (*inner, push, "bitmap"), owners)
    run_all(ranks, [rows_of(ids, torch.ones(len(ids), width), units) for ids in held])
    plan = ranks[0].artifact.plan
    predicted = weigh(plan, expand(plan, size), gradients(units, width, "f32", held)).traffic
    for rank, collective in enumerate(ranks):
        for kind, traffic in predicted.items():
            counted = traffic.of_rank(rank)
            stats = collective.stats["phases"].get(kind, dict.fromkeys(counted, 0))
            assert {key: stats[key] or 0 for key in counted if "formats" not in key} == {
                key: counted[key] for key in counted if "formats" not in key
            }


def rows_of(ids: np.ndarray, values: torch.Tensor, units: int) -> torch.Tensor:
    at = torch.from_numpy(ids)[None]
    return torch.sparse_coo_tensor(at, values, (units, values.shape[1]), check_invariants=False)


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (4, 2)])
def test_processes(nine, sizes):
    turn = SIZES.index(sizes)
    texts = [owners_text(sizes, (*INSIDE[(3 * turn + k) % len(INSIDE)], "auto", "auto"), OWNERS[k]) for k in range(4)]
    results = nine.run("tests.runtime.jobs:combinations", size=prod(sizes), texts=texts, turn=turn, scheme="tiered")
    assert all(result == results[0] for result in results)


def test_an_error_in_the_outermost_tier_names_the_ranks_of_the_group():
    """Ranks 1 and 3 are 0 and 1 in the tier. Packets 6 and 7 are after the inner push and before its pull."""
    artifact = zenc.compile_text(owners_text((2, 2), (*INNER[0], "auto", "auto"), OWNERS[0]), ranks=4, scheme="tiered")
    inputs = [sparse_tensor("random", rank, 4, 40, 3, torch.float32, 1) for rank in range(4)]
    notes = set[str]()
    for turn in (6, 7):
        ranks = collectives(artifact, 4, deadline=1.0, on_send=Damage(turn, flipped(1, 1)))
        with ThreadPoolExecutor(4) as pool:
            calls = [pool.submit(rank.all_reduce, tensor) for rank, tensor in zip(ranks, inputs, strict=True)]
            errors = [error for call in calls if isinstance(error := call.exception(), SynchronisationError)]
        notes |= {note for error in errors for each in error.diagnostics for note in each.notes}
    groups = {f"in the outermost tier, whose 2 ranks here are {ranks}" for ranks in ("0, 2", "1, 3")}
    assert notes & groups


def test_what_it_can_not_do_is_refused():
    text = owners_text((2, 2), (*INNER[0], "auto", "auto"), OWNERS[0])
    ranks = ranks_of(text, 4, "tiered")
    ids = torch.arange(3)
    rows = rows_of(ids.numpy(), torch.ones(3, 2), 9)
    for id, call in (
        ("phase-not-alone", lambda: ranks[0].reduce_scatter(rows)),
        ("phase-not-alone", lambda: ranks[0].owned((9, 2))),
        ("not-announced", lambda: ranks[0].announce(ids, (9, 2))),
        ("owners-in-a-tier", lambda: zenc.compile_text(text, ranks=4, scheme="tiered", target="cuda")),
    ):
        with pytest.raises(ZencError, match=rf"error\[{id}\]"):
            call()


@settings(max_examples=tried(60), deadline=None)
@given(BY_HOLDERS, st.integers(1, 9), st.integers(1, 400), st.integers(1, 40), st.floats(0, 1), st.integers(0, 2**32))
def test_bytes_by_holders_are_those_predicted(text, size, units, width, density, seed):
    rng = np.random.default_rng(seed)
    held = [np.flatnonzero(rng.random(units) < density * rng.random()) for _ in range(size)]
    ranks = ranks_of(text, size)
    run_all(ranks, [rows_of(ids, torch.ones(len(ids), width), units) for ids in held])
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
    ranks = ranks_of(scheme(communication, aggregation), size)
    rng = np.random.default_rng(size)
    inputs = []
    for _ in range(size):
        ids = np.sort(rng.choice(UNITS, round(UNITS * density), replace=False))
        inputs.append(rows_of(ids, torch.ones(len(ids), WIDTH), UNITS))
    run_all(ranks, inputs)
    for rank, buffers in enumerate(expected(ranks[0].artifact.plan, size, density)):
        sets, rows = found[rank]
        assert buffers["index_sets"] == pytest.approx(sets, rel=0.06, abs=8 * size)
        assert buffers["segments"] == pytest.approx(rows, rel=0.06)


def test_sets_are_part_of_what_a_rank_needs() -> None:
    plan = ranks_of(scheme(), 4)[0].artifact.plan
    rounds = expand(plan, 4)
    ledger = MemoryModel(plan, rounds, expected_bytes(plan, 4, GradientSpec(6_400, 2, "f32", 0.5)))
    prove(plan, rounds, ledger.observe)
    need = ledger.capacity(ring(4)).needs[0]
    present = 6_000  # 6,400 * (1 - 0.5^4)
    buffers = dict(zip(BUFFERS, need.buffers, strict=True))
    assert buffers["index_sets"] == 5 * 800 + 2 * present + 4 * 24 * 8  # the part that is summed here has 1,500 slots
    assert "index sets 16.77 kB" in need.text()
