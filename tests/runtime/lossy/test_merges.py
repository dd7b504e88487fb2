"""gTop-k: sums on their way are selected from anew, alike where ranks make the same, and one of them keeps the rest."""

import numpy as np
import numpy.typing as npt
import pytest
import torch

import zenc
from tests.runtime.lossy.test_conservation import gradients, summed
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact

Floats = npt.NDArray[np.float32]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def top(values: Floats, k: int) -> Floats:
    """Return the ``k`` greatest of ``values``, of equals the first, and 0 elsewhere."""
    chosen = np.argsort(-np.abs(values), kind="stable")[:k]
    found = np.zeros_like(values)
    found[chosen] = values[chosen]
    return found


def gtop_k(of: list[Floats], k: int) -> tuple[Floats, list[Floats]]:
    """Return the result of gTop-k (ICDCS 2019, algorithms 2 and 3), and what each of 2^m ranks keeps."""
    held = [top(each, k) for each in of]
    left = [each - mine for each, mine in zip(of, held, strict=True)]
    distance = 1
    while distance < len(of):
        for rank in range(0, len(of), 2 * distance):
            both = held[rank] + held[rank + distance]
            held[rank] = top(both, k)
            left[rank] += both - held[rank]
        distance *= 2
    return held[0], left


@pytest.mark.parametrize("size", [2, 4])
def test_it_is_gtop_k(size: int) -> None:
    ranks = collectives(zenc.compile("gtop_k", ranks=size, params={"density": 0.05}), size)
    left = [np.zeros(200, dtype=np.float32) for _ in range(size)]
    for step in range(6):
        given = [torch.randn(200, generator=torch.Generator().manual_seed(9 * step + rank)) for rank in range(size)]
        found = run_all(ranks, [each.clone() for each in given], name="w")
        wanted, left = gtop_k([each.numpy() + rest for each, rest in zip(given, left, strict=True)], 10)
        assert all(each.numpy().tolist() == wanted.tolist() for each in found)
        assert int((found[0] != 0).sum()) <= 10
        kept = [rank.residual("w").numpy() for rank in ranks]
        assert all(a.tolist() == b.tolist() for a, b in zip(kept, left, strict=True))


def merging(moves: str, cut: str, select: str, merge: str, more: str = "push: coo pull: coo") -> str:
    feedback = "" if "feedback" in more else "feedback: residual"
    return (
        f"scheme merging {{ communication: {moves} aggregation: incremental partition: {cut} "
        f"select: {select} merge: {merge} {more} {feedback} }}"
    )


ONE, CUT = "centralization", "parallelism balance: imbalanced"
SPREAD = "parallelism balance: balanced by permutation"
TIERS = "scheme merging { tier node(2): inner tier cluster: outer } " + " ".join(
    merging(*of).replace("scheme merging", f"scheme {name}")
    for name, of in {
        "inner": ("hierarchy", ONE, "top(0.3)", "top(0.2)"),
        "outer": ("ring", ONE, "top(0.2)", "top(0.1)"),
    }.items()
)
MERGING = {
    "pairs": merging("hierarchy", ONE, "top(0.1)", "top(0.1)"),
    "halves": merging("hierarchy", SPREAD, "top(0.2)", "top_of_blocks(0.1, 16)", "push: auto pull: bitmap"),
    "a chain": merging("ring", ONE, "top(0.2)", "above(3)", "push: elias_fano pull: dense"),
    "hops": merging("ring", SPREAD, "all", "top(0.2) by sampled(0.3)", "push: block(8) pull: auto"),
    "draws": merging("hierarchy", ONE, "top(0.3)", "random_each(0.5)"),
    "owners": merging(
        "point_to_point then ring", CUT, "top(0.2)", "top(0.2)", "reselect: top(0.1) push: dense pull: coo"
    ),
    "tiers": TIERS,
    "shifted": merging("hierarchy", ONE, "top(0.2)", "top(0.2)", "feedback: shifted"),
    "momentum": merging("hierarchy", ONE, "top(0.2)", "top(0.2)", "feedback: momentum(0.5)"),
    "exact": merging("hierarchy", ONE, "top(0.4)", "top(0.3)", "push: coo as fixed(8) pull: coo as fixed(8)"),
    "rounded": merging("hierarchy", ONE, "top(0.4)", "top(0.3)", "push: coo as bf16 pull: coo as bf16"),
}
EXACT = [kind for kind in MERGING if kind not in ("shifted", "momentum", "rounded")]


def of_kind(kind: str, size: int, target: str = "cpu") -> Artifact:
    told = {"target": target, "arch": []} if target == "cuda" else {}
    return zenc.compile_text(MERGING[kind], ranks=size, scheme="merging", **told)


@pytest.mark.parametrize("kind", EXACT)
def test_merges_lose_nothing(kind: str) -> None:
    """Gradients are the sum and the residuals, in integers, among 1 to 9 ranks, of which some have nothing."""
    for size in (2, 4, 6, 8) if kind == "tiers" else (1, 3, 4, 7, 9) if kind != "pairs" else range(1, 10):
        ranks, due = collectives(of_kind(kind, size), size), torch.zeros(130, dtype=torch.float64)
        for step in range(4):
            given = gradients(size, 130, step, DTYPES[size % 3])
            given[size // 2].mul_(step % 2)
            found = run_all(ranks, [each.clone() for each in given], name="w")
            assert all(torch.equal(found[0], other) for other in found)
            due += torch.stack(given).double().sum(dim=0) - found[0].double()
            assert torch.equal(sum(rank.residual("w").double() for rank in ranks), due)


@pytest.mark.parametrize(("turn", "kind"), list(enumerate(MERGING)))
def test_gpus_do_as_cpus(turn: int, kind: str) -> None:
    size, dtype = (4 if kind == "tiers" else 2 + turn % 4), DTYPES[turn % 3]
    gpus = [rank.collective for rank in emulated_ranks(of_kind(kind, size, "cuda"), size)]
    cpus = collectives(of_kind(kind, size), size)
    for step in range(3):
        given = [torch.randn(1100, generator=torch.Generator().manual_seed(9 * step + r)) for r in range(size)]
        given[turn % size].mul_(step % 2)
        of_gpus, of_cpus = (
            run_all(ranks, [each.to(dtype, copy=True) for each in given], "mean", name="w") for ranks in (gpus, cpus)
        )
        assert all(torch.equal(of_cpus[0], each) for each in (*of_gpus, *of_cpus))
        assert all(torch.equal(a.residual("w"), b.residual("w")) for a, b in zip(gpus, cpus, strict=True))
    assert gpus[0].stats["units_out"] == cpus[0].stats["units_out"]


def test_states_go_on_with_fewer_ranks() -> None:
    """Residuals of four ranks are in the first sum of two, or kept by them."""
    first, second = (collectives(of_kind("pairs", size), size) for size in (4, 2))
    run_all(first, gradients(4, 130, 0), name="w")
    kept = sum(rank.residual("w").double() for rank in first)
    state = summed([rank.state_dict() for rank in first])
    for rank in second:
        rank.load_state_dict(state)
    given = gradients(2, 130, 1)
    found = run_all(second, [each.clone() for each in given], name="w")
    left = sum(rank.residual("w").double() for rank in second)
    assert torch.equal(found[0].double() + left, kept + torch.stack(given).double().sum(dim=0))
