"""Transforms and decay: coefficients are selected, the others decay, and DeMo does as its authors say."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

import zenc
from tests.runtime.lossy.test_codes import CUTS, coded
from tests.runtime.lossy.test_conservation import gradients, scheme
from tests.runtime.lossy.test_saved_state import through_a_file
from tests.support.local import collectives, run_all
from zenc.runtime.call.collective import Collective
from zenc.runtime.lossy.kernels import compression_kernels
from zenc.runtime.lossy.linear import ChunkTransform, matrix_for
from zenc.scheme.compression import Dct, Hadamard, Transform

Floats = npt.NDArray[np.float64]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
COARSE = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
HOST = torch.device("cpu")


def transformed(transform: str, selection: str, feedback: str = "decay(0.9)", more: str = "") -> str:
    return scheme(selection, feedback=feedback, more=f"transform: {transform} {more}")


def cosines(length: int) -> Floats:
    """Return the orthonormal DCT-II as a matrix [coefficients, values], by its definition."""
    made = np.cos(np.pi * np.outer(np.arange(length), 2 * np.arange(length) + 1) / (2 * length))
    made[0] /= np.sqrt(2)
    return np.asarray(made * np.sqrt(2 / length), dtype=np.float64)


def demo(momentum: Floats, density: float, chunk: int) -> Floats:
    """Return q of DeMo's algorithm: the greatest coefficients of each chunk of a momentum, as values."""
    found = []
    for own in np.split(momentum, range(chunk, len(momentum), chunk)):
        of = cosines(len(own))
        coefficients = of @ own
        k = max(1, round(density * chunk) * len(own) // chunk)
        coefficients[np.argsort(-np.abs(coefficients))[k:]] = 0
        found.append(of.T @ coefficients)
    return np.concatenate(found)


def test_it_is_demo() -> None:
    """Momenta decay, take up gradients, and lose the values that are sent: as in a model in float64."""
    ranks, size, n = collectives(zenc.compile("demo", ranks=3, params={"beta": 0.9, "density": 0.1}), 3), 3, 200
    momenta = [np.zeros(n) for _ in range(size)]
    for step in range(5):
        given = [torch.randn(n, generator=torch.Generator().manual_seed(size * step + rank)) for rank in range(size)]
        found, *others = run_all(ranks, [each.clone() for each in given], name="w")
        momenta = [0.9 * momentum + each.numpy() for momentum, each in zip(momenta, given, strict=True)]
        sent = [demo(momentum, 0.1, 64) for momentum in momenta]
        momenta = [momentum - each for momentum, each in zip(momenta, sent, strict=True)]
        assert np.abs(found.numpy() - sum(sent)).max() < 2e-6
        assert all(torch.equal(found, other) for other in others)
        kept = [rank.residual("w").numpy() for rank in ranks]
        assert max(np.abs(kept[rank] - 0.9 * momenta[rank]).max() for rank in range(size)) < 2e-6


@pytest.mark.parametrize("of", [Dct(2), Dct(7), Dct(64), Dct(1024), Hadamard(2), Hadamard(64), Hadamard(1024)], ids=str)
def test_matrices_are_orthonormal_and_there_and_back_is_the_same_but_for_rounding(of: Transform) -> None:
    chunk = getattr(of, "chunk", 0) or getattr(of, "block", 0)
    matrix = matrix_for(isinstance(of, Dct), chunk, False, HOST).double()
    assert (matrix.T @ matrix - torch.eye(chunk, dtype=torch.float64)).abs().max() < 2e-7
    if isinstance(of, Dct):
        assert np.abs(matrix.T.numpy() - cosines(chunk)).max() < 6e-8
    n = 2 * chunk + chunk // 2
    values = torch.randn(n, generator=torch.Generator().manual_seed(chunk))
    turn = ChunkTransform(compression_kernels(), of, values.clone())
    turn.turn(turn.coefficients)
    own = values[chunk : 2 * chunk].double() @ matrix
    assert (turn.coefficients[chunk : 2 * chunk] - own).abs().max() < 1e-6
    assert torch.equal(turn.coefficients[2 * chunk :], values[2 * chunk :]) == (chunk == 2 or isinstance(of, Hadamard))
    turn.turn(turn.coefficients, back=True)
    assert (turn.coefficients - values).abs().max() < 2e-6


KINDS = {
    "blocks": transformed("dct(16)", "top_of_blocks(0.25, 16)"),
    "parts": transformed("hadamard(16)", "top_of_parts(0.2)", "residual"),
    "then": transformed("dct(30)", "top(0.1) then random_each(0.2)"),
    "warm": transformed("dct(16)", "top(0.05)", more="warmup: falling(4, 0.5)"),
    "dense first": transformed("hadamard(32)", "top(0.1) by reused(3)", more="warmup: dense(2)"),
    "encoded": coded("sign(16)", "owners", "balanced by permutation", "coo",
                     "transform: dct(16) select: top(0.2) reselect: top(0.1)", "decay(0.9)"),
    "exact": coded("fixed(8)", "hops", select="transform: dct(16) select: top(0.3)", feedback="decay(0.9)"),
    "by size": coded("f16", "owners", "balanced by encoded", "bitmap", "transform: dct(16) select: top(0.3)"),
    "merged": coded("bf16", "hops", CUTS[0], "coo", "transform: dct(16) select: top(0.3) merge: top(0.2)"),
    "values": scheme("top(0.1)", feedback="decay(0.9)"),
    "codes": coded("int(4, 8)", "one-shot", feedback="decay(0.9)"),
}  # fmt: skip


@pytest.mark.one_in(1)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_given_is_summed_or_kept_times_the_decay(kind: str, dtype: torch.dtype) -> None:
    """But for rounding to float32, as a transform does there and back, and to the 16 bits of a result."""
    size, op, rows = 3, ("sum", "mean")[list(KINDS).index(kind) % 2], list(KINDS).index(kind) % 3 == 0
    artifact = zenc.compile_text(KINDS[kind], ranks=size)
    ranks, beta = collectives(artifact, size), getattr(artifact.plan.feedback, "beta", 1.0)
    due, greatest = torch.zeros(29 * 5, dtype=torch.float64), 0.0
    for step in range(6):
        given = [each.view(29, 5) for each in gradients(size, 29 * 5, step, dtype)]
        found = run_all(ranks, [each.clone() for each in given], op, name="w", rows=rows)
        assert all(torch.equal(found[0], other) for other in found)
        total = found[0].double() * (size if op == "mean" else 1)
        due = beta * (due + sum((each.double() for each in given), -total).view(-1))
        kept = torch.stack([rank.residual("w").double().view(-1) for rank in ranks])
        greatest = max(greatest, float(kept.abs().sum(dim=0).max()), float(total.abs().max()))
        assert (kept.sum(dim=0) - due).abs().max() < 1e-6 * (step + 2) * greatest
    assert ranks[0].stats["loss"]["residual_norm"] == pytest.approx(float(kept[0].norm()), rel=1e-4)


def kept_by(ranks: list[Collective]) -> list[str]:
    entries = (rank.state_dict()["tensors"]["w"].values() for rank in ranks)
    return [str([each.tolist() for each in entry if isinstance(each, torch.Tensor)]) for entry in entries]


@pytest.mark.parametrize(
    ("name", "given", "bad"),
    [
        ("demo", {"beta": 1.0}, (torch.nan, 3e38)),
        ("demo", {"beta": 0.5}, (torch.nan, 3e38)),
        ("ef21", {}, (torch.nan,)),
    ],
)
def test_what_is_not_finite_or_taken_back_changes_nothing(
    name: str, given: dict[str, float], bad: tuple[float]
) -> None:
    """A value of 3e38 overflows as a coefficient."""
    ranks = collectives(zenc.compile(name, ranks=2, params=given), 2)
    run_all(ranks, gradients(2, 100, 0), name="w")
    before = kept_by(ranks)
    for wrong in bad:
        brought = gradients(2, 100, 1)
        brought[1][64:] = wrong
        assert not any(bool(each.isfinite().all()) for each in run_all(ranks, brought, name="w"))
        assert kept_by(ranks) == before
    run_all(ranks, gradients(2, 100, 2), name="w")
    for rank in ranks:
        rank.take_back(["w"])
    assert kept_by(ranks) == before


@pytest.mark.parametrize("name", ["demo", "ef21"])
def test_a_rank_that_is_alone_has_its_gradient(name: str) -> None:
    (alone,) = collectives(zenc.compile(name, ranks=1), 1)
    for step in range(3):
        given = torch.randn(70, generator=torch.Generator().manual_seed(step))
        assert torch.equal(alone.all_reduce(given.clone(), name="w"), given)


def test_states_are_by_name_and_go_on_to_the_bit_in_other_calls() -> None:
    """Pieces of two calls go on in one: kept are values, and not coefficients of chunks of other calls."""
    first, second = (collectives(zenc.compile("demo", ranks=3), 3) for _ in range(2))
    for seed, (name, numel) in enumerate((("a", 70), ("b", 90))):
        run_all(first, gradients(3, numel, seed), name=name)
    for rank, before in zip(second, first, strict=True):
        rank.load_state_dict(through_a_file(before.state_dict()))
        assert torch.equal(rank.residual("b"), before.residual("b"))
    found, expected = (run_all(of, gradients(3, 160, 2), name=[("a", 70), ("b", 90)]) for of in (second, first))
    assert all(torch.equal(*pair) for pair in zip(found, expected, strict=True))
    assert [str(rank.state_dict()) for rank in second] == [str(rank.state_dict()) for rank in first]
