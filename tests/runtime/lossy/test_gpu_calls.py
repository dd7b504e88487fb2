"""Lossy calls of emulated GPUs: sums, residuals and bytes are those of CPUs, bit for bit."""

import os
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import zenc
from tests.emulator.sanitized import assert_clean
from tests.runtime.lossy.test_codes import TIERS, coded
from tests.runtime.lossy.test_conservation import compiled, gradients, scheme
from tests.support.cases import same_bits
from tests.support.emulated_gpu import EmulatedRank, emulated_ranks
from tests.support.local import collectives, run_all
from tests.support.refusals import refusals
from tests.support.shipped import LOSSY
from zenc.codegen.artifact import Artifact
from zenc.errors import BuildError, SynchronisationError, ZencError
from zenc.pipeline import backend
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu.capacity import capacity_of
from zenc.runtime.lossy.gpu_kernels import GpuCompression
from zenc.runtime.lossy.lossy_collective import LossyCollective

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
COMPOSED = {
    "permuted": (coded("fp8(16)", "one-shot", "balanced by permutation", "coo"), 2),
    "hashed": (coded("levels(4, 8)", "ring", "balanced by hierarchical_hash", "auto"), 3),
    "hops": (coded("f16", "hops", format="block(8)"), 3),
    "selected": (coded("onebit(8)", "owners", "balanced by permutation", "bitmap", "select: top(0.3)"), 2),
    "forwarded": (coded("ternary(16)", "ring", format="elias_fano"), 3),
    "reselected": (
        coded("sign(16)", "owners", "imbalanced", "coo", "select: top(0.1) reselect: top_of_blocks(0.1, 32)"),
        3,
    ),
    "votes": (coded("vote(16)", "owners", feedback="none"), 4),
    "votes by momentum": (coded("vote(16)", "owners", "balanced by permutation", feedback="decay(0.9)"), 3),
    "shifted": (coded("sign(16)", "owners", "imbalanced", "coo", "select: top(0.2) reselect: top(0.1)", "shifted"), 3),
    "shifted, encoded": (coded("int(4, 8)", "one-shot", feedback="shifted"), 2),
    "decay": (coded("int(4, 8)", "one-shot", feedback="decay(0.9)"), 2),
    "cosines": (coded("sign(16)", "owners", select="select: top(0.2) transform: dct(30)", feedback="decay(0.9)"), 3),
    "signs": (coded("f16", "hops", format="coo", select="select: top_of_parts(0.2) transform: hadamard(32)"), 2),
    "fixed": (coded("fixed(8)", "hops", "balanced by permutation"), 3),
    "one adds": (coded("fixed(12)", "owners", format="auto"), 2),
    "range coder": (coded("fixed(8) by asc", "hops"), 3),
    "range coder, sparse": (coded("fixed(12) by asc", "one-shot", "balanced by permutation", "coo"), 2),
    "linear": (coded("fixed(8) by asc", "owners", select="select: random(0.3)"), 3),
    "tiers": (TIERS, 4),
    "outer tier selects": ("scheme coded { tier node(2): dense_ring tier cluster: topk_a2a(0.2) }", 4),
    "cut by size": (coded("f16", "owners", "balanced by encoded", "bitmap"), 3),
    "cut by size, dense": (coded("bf16", "hops", "balanced by encoded", select="select: top_of_parts(0.2)"), 3),
}


def on_gpus(artifact: Artifact, size: int, deadline: float = 300.0) -> list[Collective]:
    return [rank.collective for rank in emulated_ranks(artifact, size, deadline)]


def drawn(size: int, numel: int, seed: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return gradients half of which are zero, more towards the end."""
    generator = torch.Generator().manual_seed(seed)
    there = torch.rand(size, numel, generator=generator) > torch.linspace(0, 1, numel)
    return list((torch.randn(size, numel, generator=generator) * there).to(dtype).unbind())


def outcomes(ranks: Sequence[Collective], numel: int, dtype: torch.dtype) -> tuple[list[torch.Tensor], list[Any]]:
    """Return sums and residuals of three calls of all ranks, and the bytes of bodies, units and norms of rank 0."""
    tensors, counted = [], []
    for step in range(3):
        tensors += run_all(ranks, drawn(len(ranks), numel, step, dtype), "mean", name="w")
        if ranks[0].artifact.plan.feedback is not None:
            tensors += [rank.residual("w") for rank in ranks]
        stats = ranks[0].stats
        phases = stats["phases"].items()
        bodies = {(kind, format): size for kind, of in phases for format, size in of["formats_sent"].items() if size}
        norms = ("gradient_norm", "residual_norm", "residual_over_gradient")  # squares are added in another order
        loss = [f"{stats['loss'][norm]:.9g}" for norm in norms if "loss" in stats]
        cuts = stats["loss"]["part_bytes"] if "loss" in stats else []
        counted.append((bodies, stats["units_in"], stats["units_out"], loss, cuts))
    return tensors, counted


@pytest.mark.parametrize(
    ("scheme", "size"),
    [
        pytest.param(scheme, size, marks=pytest.mark.slow if (turn + size) % 2 else [])
        for turn, scheme in enumerate(LOSSY)
        for size in (2, 3)
    ],
)
def test_shipped_schemes_do_as_on_cpus(scheme: str, size: int) -> None:
    artifact = zenc.compile(scheme, ranks=size, target="cuda", arch=[])
    told = 3000 + size, DTYPES[(LOSSY.index(scheme) + size) % 3]
    of_gpus, of_cpus = outcomes(on_gpus(artifact, size), *told), outcomes(collectives(artifact, size), *told)
    assert all(torch.equal(a, b) for a, b in zip(of_gpus[0], of_cpus[0], strict=True))
    assert of_gpus[1] == of_cpus[1]


@pytest.mark.one_in(2)
@pytest.mark.parametrize(("kind", "way"), [*((kind, "table") for kind in COMPOSED), ("tiers", "compiled")])
def test_composed_schemes_do_as_on_cpus(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZENC_SEQUENCE", way)
    text, size = COMPOSED[kind]
    artifact = zenc.compile_text(text, ranks=size, scheme="coded", target="cuda", arch=[])
    told = (37, 130, 500)[size - 2], DTYPES[size % 3]
    of_gpus, of_cpus = outcomes(on_gpus(artifact, size), *told), outcomes(collectives(artifact, size), *told)
    assert all(torch.equal(a, b) for a, b in zip(of_gpus[0], of_cpus[0], strict=True))
    assert of_gpus[1] == of_cpus[1]


def test_what_is_not_finite_is_seen_by_all_and_kept_by_none() -> None:
    ranks = on_gpus(zenc.compile("one_bit", ranks=2, target="cuda", arch=[]), 2)
    run_all(ranks, drawn(2, 40, 0, torch.float32), name="w")
    before = [rank.residual("w") for rank in ranks]
    given = drawn(2, 40, 1, torch.float32)
    given[1][9] = torch.inf
    assert not any(bool(torch.isfinite(each).all()) for each in run_all(ranks, given, name="w"))
    assert all(torch.equal(rank.residual("w"), kept) for rank, kept in zip(ranks, before, strict=True))


def test_a_rank_that_fails_after_the_messages_goes_on_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """The other one has a sum; this one keeps what it had, and has not counted the call."""
    ranks = on_gpus(zenc.compile("sketch_sgd", ranks=2, target="cuda", arch=[]), 2)
    run_all(ranks, drawn(2, 400, 0, torch.float32), name="w")
    kept, given = ranks[1].residual("w"), drawn(2, 400, 1, torch.float32)

    def is_finite(of: GpuCompression, *_: object) -> bool:
        if of.gpu.name == "1":
            raise torch.OutOfMemoryError("the test has taken all memory")
        return True

    monkeypatch.setattr(GpuCompression, "is_finite", is_finite)
    with pytest.raises(torch.OutOfMemoryError):
        run_all(ranks, given, name="w")
    with pytest.raises(SynchronisationError, match="group-broken"):
        ranks[1].all_reduce(given[1], name="w")
    assert [rank.keeper.counts()["w"].step for rank in ranks if rank.keeper] == [2, 1]
    assert torch.equal(ranks[1].residual("w"), kept)


def test_sparse_gradients_travel_encoded() -> None:
    text = coded("bf16", "owners", format="auto", feedback="none")
    ranks = on_gpus(zenc.compile_text(text, ranks=3, target="cuda", arch=[]), 3)
    given = [torch.eye(40)[:, ::4].mul(rank + 1).to_sparse(1) for rank in range(3)]
    for found in run_all(ranks, given, "mean"):
        assert torch.equal(found.to_dense(), torch.eye(40)[:, ::4] * 2)


def test_any_ranges_of_rows_do_as_on_cpus_and_another_cut_is_found_out() -> None:
    artifact = zenc.compile_text(
        coded("f16", "owners", "balanced by encoded", "bitmap"), ranks=3, target="cuda", arch=[]
    )
    kept = torch.arange(120) * 2.0**-20
    tensor = {"shape": [40, 3], "step": 0, "threshold": None, "ends": [7, 7, 40], "residual": kept}
    both, found = (on_gpus(artifact, 3), collectives(artifact, 3)), []
    for ranks in both:
        for rank in ranks:
            state = {"zenc_residuals": 1, "feedback": "residual", "ranks": 3, "rank": rank.rank}
            rank.load_state_dict({**state, "tensors": {"w": tensor}})
        given = [each.view(40, 3) for each in drawn(3, 120, 0, torch.float32)]
        found.append([*run_all(ranks, given, name="w", rows=True), *[rank.residual("w") for rank in ranks]])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))
    assert (
        both[0][0].state_dict()["tensors"]["w"]["ends"] == both[1][0].state_dict()["tensors"]["w"]["ends"] != [7, 7, 40]
    )
    both[0][0].load_state_dict({**state, "rank": 0, "tensors": {"w": {**tensor, "step": 1}}})
    with pytest.raises(SynchronisationError):
        run_all(both[0], given, name="w", rows=True)


MIXED = coded("bf16", "owners").replace("push: dense as bf16", "push: coo")
ROOMS = [
    ("topk_a2a", 0.01, False), ("topk_a2a", 0.002, True), ("dgc", 1.0, False), ("one_bit", 1.0, False),
    ("qsgd", 1.0, False), ("sketch_sgd", 1.0, False), ("demo", 0.1, False), (MIXED, 0.3, True), (MIXED, 1.0, False),
]  # fmt: skip
"""Scheme, capacity as shares of units, and whether calls are repeated."""


def waits_of(ranks: Sequence[EmulatedRank]) -> int:
    """Return rank 0's waits in a call like the last ones."""
    count = ranks[0].gpu.calls
    before = count("wait")
    run_all([rank.collective for rank in ranks], drawn(len(ranks), 3000, 9, torch.float32), "mean", name="w")
    return count("wait") - before


@pytest.mark.parametrize(("scheme", "shares", "again"), ROOMS)
def test_capacity_mode_does_as_the_usual_one(scheme: str, shares: float, again: bool) -> None:
    options: dict[str, Any] = {"ranks": 2, "target": "cuda", "arch": []}
    artifact = zenc.compile_text(scheme, **options) if " " in scheme else zenc.compile(scheme, **options)
    ranks = emulated_ranks(artifact, 2, capacity=capacity_of(shares, artifact.plan, 2))
    usual = emulated_ranks(artifact, 2)
    found, wanted = (outcomes([rank.collective for rank in each], 3000, torch.float32)[0] for each in (ranks, usual))
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert ranks[0].collective.stats["made_again"] == again
    assert again or waits_of(ranks) <= waits_of(usual)


REFUSED = {
    "parts are cut by the bytes": coded("f16", "owners", "balanced by encoded"),
    "agree on the scale": coded("fixed(8)", "hops"),
    "select of sums": coded("bf16", "owners", select="select: top(0.1) reselect: top(0.1)"),
    "its ranks select": coded("bf16", "hierarchy", select="select: top(0.1) merge: top(0.1)"),
    "has an index": coded("int(8, 16)", "owners", format="coo"),
}


@pytest.mark.parametrize("why", REFUSED)
def test_what_has_no_room_beforehand_is_refused(why: str) -> None:
    with pytest.raises(ZencError, match=why) as raised:
        capacity_of(1.0, zenc.compile_text(REFUSED[why], ranks=2).plan, 2)
    assert raised.value.diagnostics[0].id == "no-capacity-mode"


SELECTED = ("top_of_parts(0.2)", "top(0.1) by reused(2)", "above(7) then top(0.1)", "top(0.1) then random_each(0.1)")
LINEAR = ("random(0.1)", "probable(0.1) then random(0.1) then sketch(3, 0.3)", "sketch(4, 1)", "heavy(0.1, 3, 0.3)")
UNITS = {"sketch(4, 1)": 5000}
"""Units where 300 are too few: for several groups of a sketch, whose last run is not whole."""


@pytest.mark.parametrize("selection", [*SELECTED, *LINEAR])
def test_calls_of_gpus_sum_what_was_selected(selection: str) -> None:
    linear = selection in LINEAR
    text = scheme(selection, feedback="residual" if linear else "momentum(0.5)")
    text = text.replace("coo", "dense") if linear else text
    gpus = [rank.collective for rank in emulated_ranks(zenc.compile_text(text, ranks=2, target="cuda", arch=[]), 2)]
    cpus = collectives(compiled(text, 2), 2)
    for step in range(2):
        given = gradients(2, UNITS.get(selection, 300), step)
        of_gpus, of_cpus = (run_all(ranks, [*map(torch.clone, given)], "mean", name="w") for ranks in (gpus, cpus))
        assert all(torch.equal(a, b) for a, b in zip(of_gpus, of_cpus, strict=True))
        assert all(torch.equal(a.residual("w"), b.residual("w")) for a, b in zip(gpus, cpus, strict=True))
    assert gpus[0].stats["loss"]["residual_norm"] == pytest.approx(cpus[0].stats["loss"]["residual_norm"])


@pytest.mark.one_in(1)
@pytest.mark.parametrize("transform", ["dct(1000)", "hadamard(512)", "dct(3)"])
def test_chunks_of_any_length_have_the_same_bits(transform: str) -> None:
    text = scheme("top(0.1)", feedback="decay(0.5)", more=f"transform: {transform}")
    gpus = [rank.collective for rank in emulated_ranks(zenc.compile_text(text, ranks=2, target="cuda", arch=[]), 2)]
    of_gpus, of_cpus = (
        outcomes(gpus, 3007, torch.bfloat16),
        outcomes(collectives(compiled(text, 2), 2), 3007, torch.bfloat16),
    )
    assert all(torch.equal(a, b) for a, b in zip(of_gpus[0], of_cpus[0], strict=True))
    assert of_gpus[1] == of_cpus[1]


@pytest.mark.parametrize("name", ["demo", "dgc"])
def test_kernels_that_are_late_still_have_their_memory(name: str) -> None:
    """After the deadline they go on, and what they write is nobody else's: the process lives."""
    gpus = [rank.collective for rank in emulated_ranks(zenc.compile(name, ranks=2, target="cuda", arch=[]), 2)]
    for rank in gpus:
        assert isinstance(rank, LossyCollective)
        rank._scheme.kernels_on(torch.device("cpu")).deadline = 0.0
    for known in ("cuda-failed", "group-broken"):
        refused = refusals(ZencError, run_all, gpus, drawn(2, 20_000, 0, torch.float32), name="w")
        assert refused[0].id in (known, "peer-lost")


def test_ranges_that_each_call_cuts_anew_are_not_kept() -> None:
    text, _ = COMPOSED["cut by size, dense"]
    (rank,) = on_gpus(zenc.compile_text(text, ranks=1, scheme="coded", target="cuda", arch=[]), 1)
    assert isinstance(rank, LossyCollective)
    kernels: Any = rank._scheme.kernels_on(torch.device("cpu"))
    assert kernels.order([range(2)], torch.device("cpu")) is None and not kernels._orders


def test_sums_that_float32_can_not_hold_are_refused() -> None:
    artifact = compiled(coded("fixed(16)", "owners"), 2)
    many: Any = SimpleNamespace(size=1025, rank=0)
    with pytest.raises(BuildError, match="1025 values of 16 bits have more than 25"):
        backend(artifact, torch.device("cpu"), many, 1.0)


LARGE = [(name, size, units) for units in ((1 << 20) + 3, 4_000_000, 50_000_000) for name in LOSSY for size in (2, 3)]


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("name", "size", "units"), LARGE)
def test_large_tensors_stay_in_their_memory(name, size, units):
    """Kernels and host under the address sanitizer, in a process of its own, and the CPU's bits."""
    if "EMULATOR_MODE" not in os.environ:
        test = f"{__file__}::test_large_tensors_stay_in_their_memory[{name}-{size}-{units}]"
        return assert_clean("address", "-m", "slow", test, EMULATOR_SECONDS="7000")
    artifact = zenc.compile(name, ranks=size)
    inputs, found = drawn(size, units, 0, torch.float32), []
    for ranks in (collectives(artifact, size), on_gpus(artifact, size, deadline=7000)):
        sums = run_all(ranks, [tensor.clone() for tensor in inputs], "mean", name="w")
        found.append([*sums, *(rank.residual("w") for rank in ranks if artifact.plan.feedback is not None)])
    assert same_bits([torch.cat([each.flatten() for each in of]) for of in found])
