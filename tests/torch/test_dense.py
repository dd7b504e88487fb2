"""The DDP seam on real gloo processes: results of DDP, dense gradients through schemes, and errors for its traps."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from tests.support.ranks import Ranks, RanksFailed
from zenc.torch.handle import Attachment

STEPS, WIDTH = 5, 48


class Layers(nn.Module):
    """Dense layers, two of which share a weight on request, and one may be left out."""

    def __init__(self, shared: bool = False) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 4)
        if shared:
            self.second.weight = self.first.weight
        self.use_second = True

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        hidden = torch.tanh(self.first(given))
        if self.use_second:
            hidden = torch.tanh(self.second(hidden))
        return self.last(hidden)


def wrapped(group: dist.ProcessGroup, shared: bool = False, **options: Any) -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Layers(shared), process_group=group, **options)


def given(rank: int, step: int) -> torch.Tensor:
    return torch.randn(8, WIDTH, generator=torch.Generator().manual_seed(100 * step + rank))


def backward(ddp: DistributedDataParallel, rank: int, step: int) -> None:
    ddp(given(rank, step)).pow(2).sum().backward()


def trained(ddp: DistributedDataParallel, rank: int, accumulate: bool = False) -> list[torch.Tensor]:
    """Return the parameters after some steps."""
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.01)
    for step in range(STEPS):
        optimizer.zero_grad()
        if accumulate:
            with ddp.no_sync():
                backward(ddp, rank, step + 50)
        backward(ddp, rank, step)
        optimizer.step()
    return [parameter.detach().clone() for parameter in ddp.parameters()]


def attached(ddp: DistributedDataParallel, scheme: Any, dense: Any, **options: Any) -> Attachment:
    return zenc.attach(ddp, scheme, dense=dense, deadline=30, **options)


def same_as_ddp(
    group: dist.ProcessGroup, scheme: str, how: dict[str, Any], accumulate: bool = False, **options: Any
) -> tuple[list[str], tuple[str, ...]]:
    """Check lossless training against DDP, up to order; return fingerprints and served parameters."""
    rank = group.rank()
    theirs = trained(wrapped(group, **options), rank, accumulate)
    ddp = wrapped(group, **options)
    handle = attached(ddp, scheme, True, **how)
    ours = trained(ddp, rank, accumulate)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)
    assert sum(totals.calls for totals in handle.state.log.totals.values()) >= STEPS
    return [bits(parameter) for parameter in ours], handle.parameters


JOBS = "tests.torch.test_dense:"
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


SEAM = "tests.torch.jobs:"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": True}, {"tied": True}, {"static_graph": True}, {"find_unused_parameters": True},
     {"gradient_as_bucket_view": True}],
    ids=lambda options: next(iter(options), "plain"),
)  # fmt: skip
def test_training_is_the_same_as_with_ddp_alone(four, size, options):
    results = four.run(SEAM + "same_as_ddp", size=size, scheme="balanced", **options)
    assert all(result == results[0] for result in results)


def test_other_schemes_train_as_well(four):
    for scheme in ("agsparse", "hierarchical_centralization", "dense_ring"):
        results = four.run(SEAM + "same_as_ddp", size=3, scheme=scheme)
        assert all(result == results[0] for result in results)


def test_a_rank_with_padding_only(four):
    assert four.run(SEAM + "padding_only", size=2) == [5, 0]


def test_the_hook_as_torch_hooks_are_used(four):
    results = four.run(SEAM + "hook_idiom")
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dense", [["words.weight"], ["words.weight", "tags.weight"]], ids=len)
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}], ids=str)
def test_dense_tables_go_through_the_scheme_on_request(four, size, dense, options):
    results = four.run(SEAM + "dense_tables", size=size, dense=dense, **options)
    assert all(result == results[0] for result in results)


def failure(ranks: Ranks, job: str, **arguments: object) -> str:
    with pytest.raises(RanksFailed) as caught:
        ranks.run(SEAM + job, **arguments)
    return "\n".join(str(error) for error in caught.value.errors.values())


@pytest.mark.parametrize("find", [False, True])
def test_an_unused_sparse_parameter_is_named_and_helped(four, find):
    text = failure(four, "unused", find=find)
    assert "error[unused-parameter]: the sparse parameter 'bags.weight' took no part" in text
    assert "out = out + bags(torch.empty(0, 1, dtype=torch.long)).sum()" in text


def test_the_advice_for_unused_parameters_works(four):
    assert four.run(SEAM + "unused_with_the_advice") == [None] * 4


REFUSED = {
    "attach_twice": "error[hook-taken]",
    "attach_plain": "error[not-ddp]",
    "attach_tied_to_dense": "error[tied-to-dense]: 'table.weight' is a sparse embedding's and also used by Linear",
    "attach_unfrozen": "error[unknown-parameter]: DDP has no parameter 'weight' of the model to train",
    "divided_by_fewer": "error[unknown-operation]: join(divide_by_initial_world_size=False)",
}


@pytest.mark.parametrize("job", REFUSED)
def test_what_a_scheme_in_ddp_refuses(two, job):
    assert REFUSED[job] in failure(two, job)


def test_two_models_with_a_hook_each(four):
    assert four.run(SEAM + "two_models", size=3) == [None] * 3


def test_a_rank_that_dies_in_training():
    with Ranks(3) as ranks, pytest.raises(RanksFailed) as caught:
        ranks.run(SEAM + "dies_in_training", seconds=60)
    assert set(caught.value.errors) == {1}
    for text in caught.value.results.values():
        assert text


def test_dense_parameters_that_are_none(four):
    text = failure(four, "dense_refused", name="head.weights")
    assert "error[unknown-parameter]: DDP has no parameter 'head.weights' of the model to train" in text
    assert "did you mean 'head.weight'?" in text
    text = failure(four, "dense_refused", name="words.weight")
    assert "error[sparse-already]: 'words.weight' has sparse gradients" in text


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sparse_gradients_of_16_bits_accumulate(two, dtype):
    """In torch alone "add_out_sparse_cpu" is not implemented for 'BFloat16'."""
    for difference, greatest in two.run(SEAM + "short_tables", dtype=dtype):
        assert difference <= 2**-7 * greatest and greatest > 1
