"""EF21: ranks send changes, and results are the sum of all that was sent, and each rank's part of it is known."""

import pytest
import torch

import zenc
from tests.runtime.lossy.test_codes import CUTS, coded
from tests.runtime.lossy.test_conservation import gradients, scheme
from tests.support.local import collectives, run_all
from zenc.runtime.call.collective import Collective

TOP, PERMUTED = "select: top(0.2)", CUTS[1]
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
SHIFTED = {
    "selected": (scheme("top(0.1) by sampled(0.2)", feedback="shifted"), 4),
    "selected again": (coded("sign(16)", "owners", PERMUTED, "coo", TOP + " reselect: top(0.1)", "shifted"), 3),
    "encoded": (coded("onebit(8)", "one-shot", format="auto", feedback="shifted"), 2),
    "rounded": (coded("bf16", "hops", feedback="shifted"), 4),
    "exact": (coded("fixed(6) by asc", "hops", feedback="shifted"), 3),
    "linear": (coded("int(4, 8)", "owners", select="select: random(0.3)", feedback="shifted"), 3),
    "sketch": (scheme("sketch(3, 0.5)", feedback="shifted").replace("coo", "dense"), 2),
    "coefficients": (scheme("top(0.2)", feedback="shifted", more="transform: dct(16)"), 3),
    "matrices": (scheme("", feedback="shifted").replace("coo", "dense").replace("select:", "project: lowrank(1)"), 2),
}


def sent(rank: Collective) -> torch.Tensor:
    kept: torch.Tensor = rank.state_dict()["tensors"]["w"]["sent"]
    return kept.double()


@pytest.mark.one_in(1)
@pytest.mark.parametrize("kind", SHIFTED)
def test_results_are_the_sum_of_what_ranks_have_sent(kind: str) -> None:
    """A rank has sent its gradient, less what it reports as left; gradients that stay the same come in whole."""
    (text, size), turn = SHIFTED[kind], list(SHIFTED).index(kind)
    dtype, op = DTYPES[turn % 3], ("sum", "mean")[turn % 2]
    ranks, scale = collectives(zenc.compile_text(text, ranks=size), size), size if op == "mean" else 1
    coarse, lefts = (1e-6, 2e-3, 2e-2)[turn % 3], []
    for step in range(40):
        given = [each.view(8, 15) for each in gradients(size, 120, min(step, 3), dtype)]
        found = run_all(ranks, [each.clone() for each in given], op, name="w", rows=False)
        assert all(torch.equal(found[0], other) for other in found)
        shifts = [rank.residual("w").double().view(8, 15) for rank in ranks]
        assert float((sum(shifts) + sent(ranks[0]).view(8, 15)).abs().max()) < 1e-4
        assert float((found[0].double() * scale + sum(shifts)).abs().max()) < coarse * 8 * size + 1e-4
        unsent = [float((each.double() + shift).norm()) for each, shift in zip(given, shifts, strict=True)]
        told = [rank.stats["loss"]["residual_norm"] for rank in ranks]
        assert kind == "exact" or unsent == pytest.approx(told, abs=1e-3)
        lefts.append(sum(unsent))
    assert lefts[-1] < 0.8 * lefts[3] or lefts[3] < 1


def test_it_is_ef21() -> None:
    """Each rank adds the greatest of its gradient less its estimate to that estimate; the first sends all."""
    ranks, size, k = collectives(zenc.compile("ef21", ranks=3, params={"density": 0.1}), 3), 3, 20
    estimates = [torch.zeros(200) for _ in range(size)]
    for step in range(6):
        given = [torch.randn(200, generator=torch.Generator().manual_seed(7 * step + rank)) for rank in range(size)]
        found, *_ = run_all(ranks, [each.clone() for each in given], name="w")
        for gradient, estimate in zip(given, estimates, strict=True):
            new = gradient - estimate
            chosen = new.abs().topk(k if step else 200).indices
            estimate[chosen] += new[chosen]
        torch.testing.assert_close(found, torch.stack(estimates).sum(0), rtol=0, atol=1e-5)
        for rank, estimate in zip(ranks, estimates, strict=True):
            torch.testing.assert_close(-rank.residual("w"), estimate, rtol=0, atol=1e-6)


def test_states_go_on_to_the_bit_and_scales_are_followed() -> None:
    text = scheme("top(0.1)", feedback="shifted")
    first, second = (collectives(zenc.compile_text(text, ranks=3), 3) for _ in range(2))
    run_all(first, gradients(3, 60, 0), name="w")
    for rank, before in zip(second, first, strict=True):
        rank.load_state_dict(before.state_dict())
        rank.rescale(4.0)
    given = gradients(3, 60, 1)
    found, expected = (run_all(of, [x * by for x in given], name="w") for of, by in ((second, 4), (first, 1)))
    assert all(torch.equal(a, 4 * b) for a, b in zip(found, expected, strict=True))
