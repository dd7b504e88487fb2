"""Several tables in one call, and formats chosen by seconds: bits of plain calls, and what counts bytes agrees."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import zenc
from tests.runtime.jobs import bits
from tests.support.both_targets import differences
from tests.support.cases import COMBINATIONS, DTYPES, dense_tensor, same_bits, scheme_text, sparse_tensor
from tests.support.exact import miscounted, positive
from tests.support.fuzz import fuzzed, tried
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact
from zenc.errors import CostError
from zenc.gradients.profile_generators import uniform
from zenc.simulator.calibration import ESTIMATES
from zenc.simulator.predict import predict
from zenc.wire.formats import FormatCosts

SCHEMES = ("balanced", "agsparse", "holders", "hierarchical_centralization")


def on_all(ranks: list[Any], call: Any) -> list[Any]:
    """Return the result of ``call`` on each rank, or the error that it raises."""

    def of(rank: int) -> Any:
        try:
            return call(ranks[rank], rank)
        except zenc.ZencError as error:
            return error.diagnostics[0].id

    with ThreadPoolExecutor(len(ranks)) as pool:
        return list(pool.map(of, range(len(ranks))))


def tensors_of(made: list[tuple[str, int, int]], rank: int, size: int) -> list[torch.Tensor]:
    return [
        dense_tensor("random", rank, size, rows, 1, torch.float32, seed)
        if kind == "dense"
        else sparse_tensor("random", rank, size, rows, width, torch.float16 if kind == "half" else torch.float32, seed)
        for seed, (kind, rows, width) in enumerate(made)
    ]


tables = st.tuples(
    st.sampled_from(["rows", "rows", "rows", "half", "dense"]), st.sampled_from([1, 63, 700]), st.sampled_from([1, 4])
)


@fuzzed(12)
@given(st.integers(1, 4), st.lists(tables, max_size=6), st.sampled_from(SCHEMES), st.sampled_from(["sum", "mean"]))
def test_tables_in_one_call_have_the_bits_of_their_own(
    size: int, made: list[tuple[str, int, int]], scheme: str, op: str
) -> None:
    ranks = collectives(zenc.compile(scheme, ranks=size), size)
    together = on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tensors_of(made, rank, size), op))
    alone = on_all(ranks, lambda one, rank: [one.all_reduce(each, op) for each in tensors_of(made, rank, size)])
    assert [[bits(each) for each in sums] for sums in together] == [[bits(each) for each in sums] for sums in alone]
    shapes = [each.shape for each in tensors_of(made, 0, size)]
    assert all([each.shape for each in sums] == shapes for sums in together)
    assert all(each.is_coalesced() for sums in together for each in sums if each.is_sparse)


def test_ten_tables_send_the_messages_of_one() -> None:
    ranks = collectives(zenc.compile("balanced", ranks=3), 3)
    on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tensors_of([("rows", 100, 4)] * 10, rank, 3)))
    found = [ranks[0].stats["phases"][phase]["messages_sent"] for phase in ("push", "pull")]
    assert found == [2, 2] and ranks[0].communicator.calls == 1


@pytest.mark.parametrize(
    ("rows", "ids", "expected"),
    [
        ([(40, 60), (50, 50)], None, {"different-calls", "deadline"}),
        ([(40, 60), (40, 60)], 40, {"unit-out-of-range", "deadline"}),
    ],
)
def test_lists_that_differ_and_rows_of_other_tables_are_errors(
    rows: list[tuple[int, int]], ids: int | None, expected: set[str]
) -> None:
    """The signature tells lists with equal sums of rows apart; a row beyond a table's end is not one of the next."""
    ranks = collectives(zenc.compile("balanced", ranks=2), 2, deadline=2)

    def tables_of(rank: int) -> list[torch.Tensor]:
        found = [torch.ones(each, 2).to_sparse(1) for each in rows[rank]]
        if ids is not None and rank:
            wrong = torch.tensor([[ids]])
            found[0] = torch.sparse_coo_tensor(wrong, torch.ones(1, 2), found[0].shape, check_invariants=False)
        return found

    found = on_all(ranks, lambda one, rank: one.all_reduce_coalesced(tables_of(rank)))
    assert set(found) <= expected and found[1] == min(expected - {"deadline"})


def test_what_keeps_or_decides_sums_each_table_alone() -> None:
    ranks = collectives(zenc.compile("topk_a2a", ranks=2, params={"density": 0.5}), 2)
    tensors = [torch.ones(64), torch.ones(32)]
    found = on_all(ranks, lambda one, rank: one.all_reduce_coalesced([each.clone() for each in tensors]))
    assert [[each.numel() for each in sums] for sums in found] == [[64, 32]] * 2
    assert ranks[0].communicator.calls == 2 and ranks[0].names == ("0", "1")


KINDS = ("random", "empty_on_one", "many_times", "one_part")
LINKS = (None, "100 Mbit/s", "100 Gbit/s")
NUMBERS = (4, 11, 13)
CHEAP, DEAR = st.just(0) | st.just(1), st.integers(0, 1 << 20)
COSTS = st.builds(FormatCosts, *[CHEAP | DEAR] * 5)


@cache
def compiled(number: int, size: int) -> Artifact:
    """Compile the combination of this ``number``, all of whose formats are free."""
    return zenc.compile_text(scheme_text(*COMBINATIONS[number], "auto", "auto"), ranks=size)


def over(artifact: Artifact, costs: FormatCosts) -> Artifact:
    return replace(artifact, plan=replace(artifact.plan, link=max(1, costs.byte)))


def these(costs: FormatCosts) -> mock._patch_dict:
    """Make formats cost this much on any device."""
    return mock.patch.multiple("zenc.wire.formats", CPU_COSTS=costs, GPU_COSTS=costs)


@settings(max_examples=tried(4), deadline=None)
@given(number=st.sampled_from(NUMBERS), size=st.integers(2, 3), costs=COSTS, turn=st.integers(0, 11))
def test_both_targets_choose_alike_and_sum_alike(number, size, costs, turn):
    with these(costs):
        assert differences(over(compiled(number, size), costs), size, KINDS[turn % 4 :][:1], turn) == []


@settings(max_examples=tried(20), deadline=None)
@given(
    plan=st.sampled_from([*NUMBERS, "holders"]),
    size=st.integers(1, 4),
    costs=COSTS,
    kind=st.sampled_from(KINDS),
    width=st.sampled_from([1, 3]),
    dense=st.booleans(),
    seed=st.integers(0, 99),
)
def test_sums_are_those_of_the_fewest_bytes_and_bytes_are_as_explained(plan, size, costs, kind, width, dense, seed):
    artifact = compiled(plan, size) if isinstance(plan, int) else zenc.compile(plan, ranks=size)
    make = dense_tensor if dense else sparse_tensor
    inputs = [positive(make(kind, rank, size, 300, width, DTYPES[seed % 4], seed)) for rank in range(size)]
    expected = run_all(collectives(artifact, size), [tensor.clone() for tensor in inputs])
    with these(costs):
        ranks = collectives(over(artifact, costs), size)
        found = run_all(ranks, [tensor.clone() for tensor in inputs])
        assert miscounted(ranks[0].artifact.plan, inputs, [rank.stats for rank in ranks]) == []
    assert all(same_bits([wanted, got]) for wanted, got in zip(expected, found, strict=True))


def test_a_link_is_part_of_the_plan():
    plain, fast = zenc.compile("balanced", target="plan"), zenc.compile("balanced", target="plan", link="400 Gbit/s")
    assert (plain.plan.link, fast.plan.link) == (0, 20) and "link" not in plain.plan.to_json()
    assert replace(fast.plan, link=0) == plain.plan and fast.digest != plain.digest
    assert zenc.compile("balanced", target="plan", link=1.0).plan.link == 1 << 20, "slower than any that is told"
    with pytest.raises(CostError, match="link: "):
        zenc.compile("balanced", target="plan", link="fast")


def test_explain_and_simulate_predict_the_choice():
    shape = {"ranks": 4, "units": 100_000, "width": 1, "density": 0.05}
    of_links = {link: zenc.explain("balanced", **shape, link=link) for link in LINKS}
    formats = {link: set(found.traffic["push"].formats) for link, found in of_links.items()}
    assert formats == {None: {"elias_fano"}, "100 Mbit/s": {"elias_fano"}, "100 Gbit/s": {"bitmap"}}
    profile = uniform(0.05, 1_000_000, 1)
    plain, fast = (
        predict(zenc.compile("balanced", target="plan", link=link).plan, 8, profile, calibration=ESTIMATES)
        for link in (None, "3600 Gbit/s")
    )
    assert fast.sent > plain.sent, "bitmaps have more bytes"
    assert fast.kernels < plain.kernels, "and are made faster"
