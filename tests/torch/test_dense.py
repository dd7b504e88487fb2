"""Dense gradients through schemes, on real gloo processes: the whole bucket, or all but excluded parameters."""

from __future__ import annotations

import pytest

from tests.support.ranks import RanksFailed

JOBS = "tests.torch.dense_jobs:"
WEIGHTS = ("first.weight", "second.weight", "last.weight")
NAMES = tuple(f"{layer}.{kind}" for layer in ("first", "second", "last") for kind in ("weight", "bias"))


@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": True}, {"shared": True}, {"static_graph": True}, {"find_unused_parameters": True},
     {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.001}],
    ids=lambda options: next(iter(options), "plain"),
)  # fmt: skip
@pytest.mark.parametrize("how", [{}, {"exclude": ["*.bias"]}, {"least_values": 100, "exclude": "second.*"}], ids=str)
def test_a_lossless_scheme_trains_as_ddp_does(four, how, options):
    results = four.run(JOBS + "same_as_ddp", size=3, scheme="dense_ring", how=how, **options)
    assert all(result == results[0] for result in results)
    served = {0: NAMES, 1: WEIGHTS, 2: ("first.weight", "last.weight")}[len(how)]
    assert results[0][1] == tuple(name for name in served if not options.get("shared") or name != "second.weight")


def test_a_pattern_that_excludes_nothing(two):
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "same_as_ddp", scheme="dense_ring", how={"exclude": ["first.wait"]})
    text = str(caught.value.errors[0])
    assert "error[unknown-parameter]" in text and "did you mean 'first.weight'?" in text
