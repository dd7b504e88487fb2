"""Conservation in every dtype and scheme, and in the mean: gradients and residuals = sums and new residuals."""

import pytest
import torch

import zenc
from tests.support.cases import COMBINATIONS, same_bits, scheme_text
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from tests.support.refusals import refusals
from tests.support.shipped import LOSSY, plan_of_shipped
from zenc.analysis.compression_text import sentences
from zenc.runtime.call.collective import Collective
from zenc.runtime.lossy.lossy_collective import LossyCollective
from zenc.scheme.compression import Shifted

KEEPING = [name for name in LOSSY if (plan := plan_of_shipped(name)).feedback is not None and not plan.votes]
SIXTEEN = (torch.bfloat16, torch.float16)
SIZE, UNITS, CALLS = 3, 700, 4


def gradients(step: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Return gradients of many magnitudes, so that sums of 16 bits lose much."""
    generator = torch.Generator().manual_seed(step)
    drawn = [torch.randn(2, UNITS, generator=generator) for _ in range(SIZE)]
    return [(values * torch.exp2(3 * powers)).to(dtype) for values, powers in drawn]


def velocity(rank: Collective) -> torch.Tensor:
    assert isinstance(rank, LossyCollective)
    entry = rank.keeper.store.entries.get("w")
    kept = None if entry is None else entry.vectors.velocity
    return torch.zeros(UNITS).double() if kept is None else kept.double()


def unaccounted(ranks: list[Collective], dtype: torch.dtype, op: str, m: float) -> tuple[float, list[torch.Tensor]]:
    """Return the greatest value that is in no sum and no residual, as a share of the greatest sum; and the sums."""
    beta = getattr(ranks[0].artifact.plan.feedback, "beta", 1.0)
    due, greatest, sums = torch.zeros(UNITS, dtype=torch.float64), 0.0, []
    for step in range(CALLS):
        given = gradients(step, dtype)
        speeds = [m * velocity(rank) for rank in ranks]
        found = run_all(ranks, [each.clone() for each in given], op, name="w")
        assert all(torch.equal(found[0], other) for other in found)
        sums.append(found[0])
        total = found[0].double() * (len(ranks) if op == "mean" else 1)
        if isinstance(ranks[0].artifact.plan.feedback, Shifted):  # ranks keep what they sent, not what they did not
            sent = ranks[0].state_dict()["tensors"]["w"]["sent"].view(-1)
            assert torch.equal(found[0], (sent / len(ranks) if op == "mean" else sent).to(dtype))
            due = -sent.double()
        else:
            due = beta * (due + sum((each.double() for each in (*given, *speeds)), -total))
        greatest = max(greatest, *(float(each.abs().max()) for each in given))
    kept = torch.stack([rank.residual("w").double() for rank in ranks]).sum(dim=0)
    return float((due - kept).abs().max()) / greatest, sums


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("dtype", (torch.float32, *SIXTEEN), ids=str)
@pytest.mark.parametrize("name", KEEPING)
def test_shipped_schemes_lose_nothing_of_any_dtype(name: str, dtype: torch.dtype, op: str) -> None:
    """Only rounding of float32 is lost; 16 bits alone would lose a thousand times as much."""
    artifact = zenc.compile(name, ranks=SIZE)
    m = getattr(artifact.plan.feedback, "m", 0.0)
    assert unaccounted(collectives(artifact, SIZE), dtype, op, m)[0] < 2e-6


@pytest.mark.parametrize("name, dtype", [*zip(KEEPING, SIXTEEN * len(KEEPING), strict=False)])
def test_gpus_keep_the_same(name: str, dtype: torch.dtype) -> None:
    host = collectives(zenc.compile(name, ranks=SIZE), SIZE)
    gpus = [
        each.collective for each in emulated_ranks(zenc.compile(name, ranks=SIZE, target="cuda", arch="none"), SIZE)
    ]
    found = [unaccounted(ranks, dtype, "mean", 0.0)[1] for ranks in (host, gpus)]
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(*found, strict=True))
    assert all(torch.equal(mine.residual("w"), theirs.residual("w")) for mine, theirs in zip(host, gpus, strict=True))


def rounding(combination: tuple[str, str, str], push: str = "auto", pull: str = "auto") -> str:
    return scheme_text(*combination, push, pull).replace("unit:", "feedback: rounding unit:")


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_a_lossless_scheme_keeps_what_sums_round_away(combination: tuple[str, str, str]) -> None:
    """Rounding is kept on the CPU; the scheme is refused where ranks would round differently."""
    push, pull = (("auto", "auto"), ("dense", "dense"), ("coo", "dense"))[COMBINATIONS.index(combination) % 3]
    try:
        artifact = zenc.compile_text(rounding(combination, push, pull), ranks=SIZE)
    except zenc.VerificationError as error:
        assert error.diagnostics[0].id in ("unequal-sums", "lossy-hop")
        assert combination[0] == "hierarchy"
        return
    for dtype in SIXTEEN:
        assert unaccounted(collectives(artifact, SIZE), dtype, "sum", 0.0)[0] < 2e-6


def test_sums_of_16_bits_are_as_good_as_float32_over_time() -> None:
    """A sum of 200 small gradients beside a great weight is right to a rounding; without residuals half is lost."""
    ranks = collectives(zenc.compile_text(rounding(COMBINATIONS[1]), ranks=2), 2)
    plain = collectives(zenc.compile_text(scheme_text(*COMBINATIONS[1]), ranks=2), 2)
    given, told, lost = [torch.full((8,), value, dtype=torch.bfloat16) for value in (1.0, 2**-9)], 0.0, 0.0
    for _ in range(200):
        told += float(run_all(ranks, [each.clone() for each in given], name="w")[0][0])
        lost += float(run_all(plain, [each.clone() for each in given])[0][0])
    exact = 200 * (1 + 2**-9)
    assert abs(told - exact) <= 2**-7 < abs(lost - exact)
    on_gpus = emulated_ranks(zenc.compile_text(rounding(COMBINATIONS[1]), ranks=2, target="cuda", arch="none"), 2)
    found = run_all([each.collective for each in on_gpus], [each.clone() for each in given], name="w")
    assert float(found[0][0]) in (1.0, 1 + 2**-7)


def test_bytes_are_those_of_16_bits() -> None:
    for name in ("topk_a2a", "ok_topk", "one_bit"):
        ranks, bytes_of = collectives(zenc.compile(name, ranks=SIZE), SIZE), {}
        given = [torch.randn(20_000, generator=torch.Generator().manual_seed(rank)) for rank in range(SIZE)]
        for dtype in (torch.float32, torch.bfloat16):
            run_all(ranks, [each.clone().to(dtype) for each in given], name=str(dtype))
            bytes_of[dtype] = ranks[0].stats["bytes_sent"]
        assert bytes_of[torch.bfloat16] < (1.01 if name == "one_bit" else 0.8) * bytes_of[torch.float32]


def test_rounding_is_for_schemes_that_lose_nothing_else() -> None:
    lossy = rounding(COMBINATIONS[0]).replace("unit:", "select: top(0.1) unit:")
    held = rounding(("point_to_point", "incremental", "partition: parallelism balance: balanced by holders"))
    for text, id in ((lossy, "conflicting-compression"), (held, "not-with-holders")):
        assert [each.id for each in refusals(zenc.SchemeError, zenc.compile_text, text, ranks=2)] == [id]


CHOSEN = [name for name in LOSSY if any("right in the mean" in line for line in sentences(plan_of_shipped(name)))]


def test_these_say_so():
    assert CHOSEN == ["qsgd", "terngrad"]
    assert not any("but for rounding" in line for name in CHOSEN for line in sentences(plan_of_shipped(name)))


@pytest.mark.parametrize("op", ["sum", "mean"])
@pytest.mark.parametrize("name", CHOSEN)
def test_the_mean_of_many_sums_is_right(name: str, op: str) -> None:
    """Rounding to nearest would move all of the values one way: sums of 2.01 became 2.0156 in bf16."""
    size, calls, n = 2, 40, 4096
    values = torch.tensor([1.005, -1.005, 0.5012, 1.0]).repeat(n // 4)
    exact = values.double() * (size if op == "sum" else 1)
    ranks, sums = collectives(zenc.compile(name, ranks=size), size), []
    for _ in range(calls):
        found = run_all(ranks, [values.clone() for _ in ranks], op)
        assert same_bits(found)
        sums.append(found[0].double())
    errors = torch.stack(sums).view(calls, n // 4, 4) - exact.view(n // 4, 4)
    for error in errors.permute(2, 0, 1).reshape(4, -1):
        assert abs(error.mean()) <= 5.5 * error.std() / len(error) ** 0.5 + 1e-7
