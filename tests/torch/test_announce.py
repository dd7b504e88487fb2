"""Lookups that are announced when the forward pass ends give the tables of training without, to the bit."""

import contextlib
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import zenc
from tests.runtime.jobs import bits
from zenc.torch.announcer import MOST_MISSES

ROWS, WIDTH = 300, 5
STEPS = 3


class Lookups(nn.Module):
    """A table that is looked up twice, with padding, and bags, in whichever way ``how`` says."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, WIDTH, sparse=how != "dense", padding_idx=0)
        self.bags = nn.EmbeddingBag(ROWS, WIDTH, mode="sum", sparse=True)
        if how == "tied":
            self.bags.weight = self.words.weight
        self.how = how

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        bags = self.bags(input=ids % 7)
        if self.how == "function":
            return nn.functional.embedding(ids, self.words.weight, 0, sparse=True).mean(dim=1) * bags
        if self.how == "reentrant":  # which needs an input with a gradient
            return checkpoint(self._summed, ids, torch.ones((), requires_grad=True), use_reentrant=True) * bags
        if self.how == "recomputed":
            hidden = checkpoint(self.words, ids, use_reentrant=False) + self.words(ids * 3 % ROWS)
        else:
            hidden = self.words(ids) + self.words(ids * 3 % ROWS)
        if self.how == "no gradient":
            hidden = hidden + self.words((ids + 1) % ROWS).detach()
        if self.how == "targets":
            with torch.no_grad():
                targets = self.words((ids + 1) % ROWS)
            hidden = hidden + targets
        return hidden.mean(dim=1) * bags

    def _summed(self, ids: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.words(ids).mean(dim=1) * scale


def batch(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(0, ROWS, (4, 5) if rank != 1 or step != 1 else (0, 5), generator=generator)


def step_of(ddp: DistributedDataParallel, how: str, rank: int, step: int) -> None:
    """Run forward and backward passes of one step."""
    ids = batch(rank, step)
    if how == "accumulated":
        with ddp.no_sync():
            ddp(batch(rank, step + 50)).pow(2).sum().backward()
    if how == "evaluated":
        with torch.no_grad():
            ddp(batch(rank, step + 50))
        if rank == 0:
            ddp.eval()(batch(rank, step + 50))
            ddp.train()
    before = torch.zeros(())
    if how == "two passes":
        with ddp.no_sync():
            before = ddp(batch(rank, step + 50)).sum()
    if how == "dropped" and step == 0:
        ddp(batch(rank, step + 50))
    out = ddp(ids)
    if how == "late zero":
        ddp.zero_grad()
    (out.pow(2).sum() + before).backward()


def trained(
    group: dist.ProcessGroup, how: str, announce: str | None, by_hand: bool
) -> tuple[list[str], list[list[bool]], int]:
    """Return fingerprints of the tables after some steps, the repeated calls of each step, and numbers of calls."""
    torch.manual_seed(0)
    ddp = DistributedDataParallel(Lookups(how), process_group=group)
    dense = ["words.weight"] if how == "dense" else []
    handle = zenc.attach(ddp, "holders", dense=dense, deadline=30, announce=announce)
    communicator, rank = handle.collective.communicator, group.rank()
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    again, calls = [], communicator.calls
    for step in range(MOST_MISSES + 2 if how == "function" else STEPS):
        if how != "late zero":
            optimizer.zero_grad()
        if by_hand:
            ids = batch(rank, step)
            handle.announce("words.weight", ids[ids != 0])
        step_of(ddp, how, rank, step)
        again.append([handle.stats[name]["made_again"] for name in handle.parameters])
        optimizer.step()
    calls = communicator.calls - calls
    handle.detach()
    with contextlib.suppress(RuntimeError):
        ddp(batch(rank, 0)).sum().backward()
    return [bits(parameter.detach()) for parameter in ddp.parameters()], again, calls


def lookups(group: dist.ProcessGroup, hows: list[tuple[str, bool]]) -> dict[str, Any]:
    """Return for each way whether tables are those without announcements, and the announced calls of ``trained``."""
    found = {}
    for how, by_hand in hows:
        usual, _, _ = trained(group, how, None, False)
        announced, again, calls = trained(group, how, "forward", by_hand)
        found[how + " by hand" * by_hand] = announced == usual, again, calls
    return found


def refused(group: dist.ProcessGroup) -> list[str]:
    """Return the ids of errors: of a scheme, of a way, and of a parameter that can't be announced."""
    ddp = DistributedDataParallel(Lookups(), process_group=group)
    found = []
    for scheme, announce in (("balanced", "forward"), ("holders", "backward")):
        try:
            zenc.attach(ddp, scheme, deadline=30, announce=announce)
        except zenc.SchemeError as error:
            found.append(error.diagnostics[0].id)
    try:
        zenc.attach(ddp, "holders", deadline=30).announce("words", torch.arange(3))
    except zenc.SchemeError as error:
        found.append(error.diagnostics[0].id)
    return found


JOBS = "tests.torch.test_announce:"
RIGHT = ("", "accumulated", "two passes", "evaluated", "recomputed", "late zero", "targets", "tied", "dense")
"""Ways of training in which exactly the looked-up rows have a gradient."""
ORDINARY, ANNOUNCED = 1, 3
"""Numbers that a call takes: an announced one also those of the announcement, and of the call in its place."""


def test_announcements_that_are_right(two):
    for found in two.run(JOBS + "lookups", hows=[(how, False) for how in RIGHT]):
        for how in RIGHT:
            same, made_again, calls = found[how]
            assert same, how
            tables = 1 if how == "tied" else 2
            assert made_again == [[False] * tables] * 3, how
            assert calls == 3 * tables * ANNOUNCED, how


def test_announcements_that_are_wrong_cost_time_alone(two):
    """The announcements are of words, which stand behind bags among the names."""
    hows = [(how, False) for how in ("no gradient", "dropped", "reentrant", "function")] + [("function", True)]
    for found in two.run(JOBS + "lookups", hows=hows):
        assert all(same for same, _, _ in found.values())
        made_again = {how: again for how, (_, again, _) in found.items()}
        assert made_again["no gradient"] == [[True, False]] * 3
        assert made_again["dropped"] == [[True, False], [False, False], [False, False]], "then nothing is left of it"
        assert made_again["reentrant"] == [[True, False], [False, False], [False, False]], "then it is known"
        assert made_again["function"] == [*[[True, False]] * 3, *[[False, False]] * 2], "a table gives up"
        assert found["function"][2] == 8 * ANNOUNCED + 2 * ORDINARY
        assert made_again["function by hand"] == [[False, False]] * 5


def test_what_has_nothing_to_announce(two):
    assert two.run(JOBS + "refused") == [["not-announced", "not-announced", "unknown-parameter"]] * 2
