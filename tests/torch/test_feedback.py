"""Lossy schemes under DDP, on real gloo processes: conservation, restarts, and refusals."""

import copy
import io
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import bits
from tests.support.ranks import RanksFailed
from tests.torch.test_dense import attached, backward, given, wrapped
from zenc.torch.handle import Attachment

SCHEDULE = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
TOP = "select: top_of_parts(0.1) push: coo pull: dense feedback: "
STEPS = 6


def scheme(entries: str) -> Any:
    return zenc.compile_text(f"scheme tried {{ {SCHEDULE} {entries} }}")


def local(ddp: DistributedDataParallel, rank: int, step: int) -> list[torch.Tensor]:
    """Return this rank's own gradients, in float64; zeros for missing ones."""
    loss = ddp.module(given(rank, step)).pow(2).sum()
    found = torch.autograd.grad(loss, list(ddp.parameters()), allow_unused=True)
    return [torch.zeros_like(p, dtype=torch.float64) if g is None else g.double()
            for p, g in zip(ddp.parameters(), found, strict=True)]  # fmt: skip


def kept(handle: Attachment, ddp: DistributedDataParallel) -> list[torch.Tensor]:
    """Return this rank's residuals, in float64; zeros where nothing is kept."""
    found = []
    for name, parameter in ddp.module.named_parameters():
        known = name in handle.collective.names
        found.append(handle.collective.residual(name).double() if known else torch.zeros_like(parameter).double())
    return found


def summed(group: dist.ProcessGroup, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    for tensor in tensors:
        dist.all_reduce(tensor, group=group)
    return tensors


def assert_conserved(group: dist.ProcessGroup, given: list[Any], got: list[Any], still: list[Any]) -> None:
    """Check that the sum of all gradients is the average times the ranks, plus residuals."""
    for gave, average, rest in zip(summed(group, given), got, summed(group, still), strict=True):
        torch.testing.assert_close(gave, group.size() * average.double() + rest, rtol=1e-5, atol=2e-5)


def conserved(
    group: dist.ProcessGroup, entries: str, accumulate: bool = False, steps: int = STEPS, **options: Any
) -> list[str]:
    """Check that steps in which DDP rebuilds its buckets lose nothing; return fingerprints of the parameters."""
    ddp = wrapped(group, **options)
    handle = attached(ddp, scheme(entries), True, least_values=100, exclude="last.bias")
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.001)
    gave = [torch.zeros_like(p, dtype=torch.float64) for p in ddp.parameters()]
    got = [torch.zeros_like(total) for total in gave]
    for step in range(steps):
        optimizer.zero_grad()
        gave = [total + own for total, own in zip(gave, local(ddp, group.rank(), step), strict=True)]
        if accumulate:
            gave = [total + own for total, own in zip(gave, local(ddp, group.rank(), step + 50), strict=True)]
            with ddp.no_sync():
                backward(ddp, group.rank(), step + 50)
        backward(ddp, group.rank(), step)
        got = [total + p.grad for total, p in zip(got, ddp.parameters(), strict=True)]
        optimizer.step()
    assert_conserved(group, gave, got, kept(handle, ddp))
    assert any(float(each.abs().max()) > 0 for each in kept(handle, ddp)), "something is kept"
    (loss, *_) = [report["loss"] for report in handle.stats.values()]
    assert loss["residual_over_gradient"] > 0 and "kept / gradient" in str(handle.summary())
    return [bits(parameter) for parameter in ddp.parameters()]


class Training:
    """A model with momentum, and a handle; to be saved and gone on with."""

    def __init__(self, group: dist.ProcessGroup, entries: str, **options: Any) -> None:
        self.ddp, self.rank = wrapped(group, **options), group.rank()
        self.handle = attached(self.ddp, scheme(entries), True)
        self.optimizer = torch.optim.SGD(self.ddp.parameters(), lr=0.001, momentum=0.9)

    def steps(self, first: int, last: int) -> list[list[str]]:
        """Return the calls of the last step, by the names of parameters."""
        for step in range(first, last):
            self.optimizer.zero_grad()
            backward(self.ddp, self.rank, step)
            self.optimizer.step()
        return self.handle.state.calls

    def saved(self, together: bool = False) -> Any:
        file, state = io.BytesIO(), self.handle.state_dict(together)
        torch.save([self.ddp.module.state_dict(), self.optimizer.state_dict(), state], file)
        file.seek(0)
        return torch.load(file, weights_only=True)

    def load(self, saved: Any) -> None:
        self.ddp.module.load_state_dict(saved[0])
        self.optimizer.load_state_dict(saved[1])
        self.handle.load_state_dict(saved[2])


def restarted(
    group: dist.ProcessGroup, entries: str, **options: Any
) -> tuple[list[bool], list[list[str]], list[list[str]]]:
    """Return for each parameter whether a run from a checkpoint ends as an uninterrupted one, to the bit.

    The calls of the first and the last step come with it, by the names of parameters.
    """
    through, before, after = (Training(group, entries, **options) for _ in range(3))
    first, others = through.steps(0, 1), through.steps(1, 6)
    before.steps(0, 3)
    after.load(before.saved())
    after.steps(3, 6)
    pairs = zip(through.ddp.parameters(), after.ddp.parameters(), strict=True)
    return [bits(one) == bits(other) for one, other in pairs], first, others


def saved_together(group: dist.ProcessGroup, entries: str) -> Any:
    training = Training(group, entries)
    training.steps(0, 3)
    return training.saved(together=True)


def gone_on(group: dist.ProcessGroup, entries: str, saved: Any) -> None:
    """Check that as many or fewer ranks have together what all had."""
    training = Training(group, entries)
    training.load(saved)
    for name, parameter in training.ddp.module.named_parameters():
        if name in training.handle.parameters:
            (found,) = summed(group, [training.handle.collective.residual(name).double()])
            torch.testing.assert_close(found.flatten(), saved[2]["residuals"]["tensors"][name]["residual"].double())
            assert found.shape == parameter.shape
    training.steps(3, 5)


def loads(group: dist.ProcessGroup, entries: str, saved: Any, damage: str) -> str:
    """Return the id of the error of a state that is damaged on rank 1 alone."""
    training = Training(group, entries)
    state = saved[2]
    tensors = state["residuals"]["tensors"]
    if group.rank() == 1:
        if damage == "name":
            tensors["second.wait"] = tensors.pop("second.weight")
        elif damage == "shape":
            tensors["first.weight"]["shape"] = [24, 96]
        elif damage == "world":
            state["residuals"]["rank"] = 0
        elif damage == "calls":
            state["calls"] = "cut"
        elif damage == "cut":
            tensors["first.weight"]["residual"] = tensors["first.weight"]["residual"][:7]
        else:
            del state["residuals"]
    try:
        training.handle.load_state_dict(state)
    except zenc.ZencError as error:
        return error.diagnostics[0].id
    return ""


class Scaler:
    """The part of a GradScaler that zenc reads."""

    scale = 8.0

    def get_scale(self) -> float:
        return self.scale


def scaled(group: dist.ProcessGroup, bad: int) -> list[float]:
    """Check that residuals follow the scale, and that a skipped step leaves no trace in any bucket.

    Return the greatest residual of each parameter that goes through the scheme.
    """
    ddp, scaler, rank = wrapped(group, bucket_cap_mb=0.004), Scaler(), group.rank()
    handle = attached(ddp, scheme(TOP + "residual"), True, scaler=scaler)
    gave = [torch.zeros_like(p, dtype=torch.float64) for p in ddp.parameters()]
    got = [torch.zeros_like(total) for total in gave]
    for step in range(STEPS):
        ddp.zero_grad()
        own = local(ddp, rank, step)
        loss = ddp(given(rank, step)).pow(2).sum() * scaler.scale
        if step == bad and rank == 1:
            loss = loss + ddp.module.last.weight.sum() * float("inf")
        loss.backward()
        if step == bad:
            assert not all(bool(torch.isfinite(p.grad).all()) for p in ddp.parameters())
            assert bool(torch.isfinite(ddp.module.first.weight.grad).all()), "one bucket is as good as any"
            scaler.scale /= 2
            continue
        gave = [total + each for total, each in zip(gave, own, strict=True)]
        got = [total + p.grad.double() / scaler.scale for total, p in zip(got, ddp.parameters(), strict=True)]
        if step == 3:
            scaler.scale *= 4
    still = [each / handle.state.scaling.scale for each in kept(handle, ddp)]
    assert_conserved(group, gave, got, still)
    rests = zip(dict(ddp.module.named_parameters()), still, strict=True)
    return [float(rest.abs().max()) for name, rest in rests if name in handle.parameters]


def unused(group: dist.ProcessGroup) -> float:
    """Check that residuals wait where no rank uses a parameter, whose average DDP drops; return the greatest."""
    ddp = wrapped(group, find_unused_parameters=True)
    handle = attached(ddp, scheme(TOP + "residual"), True)
    gave = [torch.zeros_like(p, dtype=torch.float64) for p in ddp.parameters()]
    got = [torch.zeros_like(total) for total in gave]
    for step in range(4):
        ddp.zero_grad()
        ddp.module.use_second = step in (0, 3) or (step == 2 and group.rank() == 0)
        gave = [total + own for total, own in zip(gave, local(ddp, group.rank(), step), strict=True)]
        backward(ddp, group.rank(), step)
        got = [total if p.grad is None else total + p.grad for total, p in zip(got, ddp.parameters(), strict=True)]
    still = kept(handle, ddp)
    assert_conserved(group, gave, got, still)
    return max(float(rest.abs().max()) for rest in still)


def refused(group: dist.ProcessGroup, entries: str, dense: Any, momentum: float = 0.0) -> None:
    ddp = wrapped(group)
    attached(ddp, scheme(entries), dense, optimizer=torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=momentum))


def beside_sparse(group: dist.ProcessGroup) -> tuple[tuple[str, ...], float]:
    """Train with sparse gradients, which stay with DDP; return the others, and their distance from the average."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.EmbeddingBag(50, 48, sparse=True), nn.Linear(48, 48))
    ddp = DistributedDataParallel(model, process_group=group)
    handle = attached(ddp, scheme(TOP + "residual"), True)
    ids = torch.full((2, 3), group.rank())
    ddp(ids).sum().backward()
    table = model[0].weight.grad.to_dense()
    own = torch.autograd.grad(model(ids).sum(), model[0].weight)[0].to_dense()
    dist.all_reduce(own, group=group)
    return handle.parameters, float((table - own / group.size()).abs().max())


def trained(
    group: dist.ProcessGroup, scheme: str, steps: int, lr: float = 0.3, **params: float
) -> tuple[float, float, list[str], int]:
    """Return the mean loss of all ranks in the first and the last of ``steps``, and of the parameters fingerprints.

    Last comes the number of those that ``scheme`` sums.
    """
    torch.manual_seed(0)
    net, teacher = (nn.Sequential(nn.Linear(48, 64), nn.Tanh(), nn.Linear(64, 48)) for _ in range(2))
    ddp = DistributedDataParallel(net, process_group=group)
    handle = zenc.attach(ddp, scheme, params=params, dense=True)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=lr)
    losses = []
    for step in range(steps):
        batch = torch.randn(32, 48, generator=torch.Generator().manual_seed(10 * step + group.rank()))
        loss = (ddp(batch) - teacher(batch).detach()).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    first, last = (float(summed(group, [losses[at]])[0]) / group.size() for at in (0, -1))
    return first, last, [bits(parameter) for parameter in ddp.parameters()], len(handle.parameters)


JOBS = "tests.torch.test_feedback:"
RESIDUAL, SIGN = TOP + "residual", "push: dense as sign(64) pull: dense as sign(64) feedback: residual"
RANDOM = "compress: qsgd(4, 64) push: dense pull: dense"
LOW_RANK = "project: lowrank(2) feedback: residual push: dense pull: dense"
SKETCH = "select: sketch(3, 0.3) feedback: residual push: dense pull: dense"


@pytest.mark.one_in(4)
@pytest.mark.parametrize(
    ("entries", "options"),
    [(RESIDUAL, {}), (RESIDUAL, {"bucket_cap_mb": 0.009, "steps": 50}), (RESIDUAL, {"accumulate": True}),
     (RESIDUAL, {"static_graph": True, "gradient_as_bucket_view": True}), (RESIDUAL, {"shared": True}),
     (SIGN, {"bucket_cap_mb": 0.004}), (SKETCH, {}), (LOW_RANK, {"bucket_cap_mb": 0.009, "steps": 50})],
    ids=str,
)  # fmt: skip
def test_nothing_is_lost_and_all_ranks_agree(four, entries, options):
    results = four.run(JOBS + "conserved", entries=entries, **options)
    assert all(result == results[0] for result in results)


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("entries", "cap"),
    [(LOW_RANK, 0.009), (RANDOM, 0.009), (TOP + "momentum(0.9)", 25), (SIGN, 25), (RESIDUAL, 0.009), (SIGN, 0.009)],
    ids=[
        "low rank, several buckets", "random levels, several buckets", "momentum", "sign", "residual, several buckets",
        "sign, several buckets",
    ],
)  # fmt: skip
def test_a_restart_goes_on_to_the_bit(two, entries, cap):
    for same, first, others in two.run(JOBS + "restarted", entries=entries, bucket_cap_mb=cap):
        assert same and all(same)
        assert len(others) == 1 if cap == 25 else len(others) > 1 and first != others, "DDP has rebuilt its buckets"


def test_another_number_of_ranks_has_the_same_sum_and_other_states_are_refused(four):
    saved = four.run(JOBS + "saved_together", entries=RESIDUAL)[0]
    for size in (1, 2):
        four.run(JOBS + "gone_on", size=size, entries=RESIDUAL, saved=copy.deepcopy(saved))
    expected = {"name": "other-model", "shape": "other-model", "cut": "bad-state", "all": "bad-state",
                "world": "other-world", "calls": "bad-state"}  # fmt: skip
    for damage, id in expected.items():
        found = four.run(JOBS + "loads", size=2, entries=RESIDUAL, saved=saved, damage=damage)
        assert found == ["different-states", id], damage


def test_factors_of_rank_two_train(two):
    found = two.run(JOBS + "trained", scheme="power_sgd", steps=50, r=2)
    assert found[0] == found[1] and found[0][1] < 0.6 * found[0][0]
    assert found[0][3] == 4, "biases are summed whole, so they go with the matrices"


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    ("scheme", "given"),
    [
        ("signum", {"lr": 0.003}), ("ef21", {"density": 0.1}), ("loco", {}), ("fp8", {}), ("demo", {"density": 0.1}),
        ("gtop_k", {"density": 0.1}),
    ],
)  # fmt: skip
def test_losses_come_near_those_of_exact_sums(two, scheme, given):
    exact, found = (
        two.run(JOBS + "trained", scheme=of, steps=300, **to) for of, to in (("dense_ring", {}), (scheme, given))
    )
    assert found[0] == found[1] and found[0][1] < 1.1 * exact[0][1] < 0.2 * exact[0][0]


@pytest.mark.parametrize("bad", [0, 2])
def test_a_scaler_is_followed_and_skipped_steps_leave_no_trace(two, bad):
    assert all(kept and min(kept) > 0 for kept in two.run(JOBS + "scaled", bad=bad))


def test_parameters_that_nobody_uses_keep_what_they_have(two):
    assert min(two.run(JOBS + "unused")) > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [({"entries": TOP + "momentum(0.9)", "dense": True, "momentum": 0.9}, "error[momentum-twice]"),
     ({"entries": RESIDUAL, "dense": False}, "error[needs-dense]")],
    ids=lambda of: of if isinstance(of, str) else "",
)  # fmt: skip
def test_what_can_not_be_is_refused(two, arguments, said):
    with pytest.raises(RanksFailed) as caught:
        two.run(JOBS + "refused", **arguments)
    assert all(said in str(error) for error in caught.value.errors.values())


def test_sparse_gradients_stay_with_ddp(two):
    assert two.run(JOBS + "beside_sparse") == [(("1.weight",), 0.0)] * 2
