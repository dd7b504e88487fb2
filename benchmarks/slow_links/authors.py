"""Schemes as their authors describe them, in plain PyTorch: zenc's are held against these.

All gradients of a model are one vector. A rule gives that of a rank, and returns the mean that all ranks step by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Rule: TypeAlias = Callable[[Tensor], Tensor]
DENSITY, BLOCK, STEPS = 0.01, 2048, 100
"""Parameters of zenc's schemes by default: values that EF21 selects, values of a scale, steps of DiLoCo."""


def mean(vector: Tensor) -> Tensor:
    dist.all_reduce(vector)
    return vector / dist.get_world_size()


def shortened(vector: Tensor) -> Tensor:
    """Return the sign of each value times the mean magnitude of its block (EF-signSGD, ICML 2019)."""
    blocks = functional.pad(vector, (0, -len(vector) % BLOCK)).view(-1, BLOCK)
    scales = blocks.abs().mean(1, keepdim=True)
    return torch.where(blocks < 0, -scales, scales).flatten()[: len(vector)]


class OneBit:
    """1-bit SGD (Interspeech 2014): ranks and the owners of sums keep what signs lose; owners are all alike here."""

    def __init__(self) -> None:
        self.ranks, self.owners = torch.zeros(()), torch.zeros(())

    def __call__(self, gradient: Tensor) -> Tensor:
        whole = gradient + self.ranks
        sent = shortened(whole)
        self.ranks = whole - sent
        total = mean(sent) + self.owners
        handed = shortened(total)
        self.owners = total - handed
        return handed


class Majority:
    """Signs, and the majority of them, at random in a tie (Bernstein et al., ICLR 2019)."""

    def __init__(self) -> None:
        self.draws = torch.Generator().manual_seed(1)

    def __call__(self, gradient: Tensor) -> Tensor:
        votes = mean(torch.where(gradient < 0, -1.0, 1.0))
        draws = torch.randint(0, 2, votes.shape, generator=self.draws) * 2.0 - 1.0
        return torch.where(votes == 0, draws, votes.sign())


class Shifted:
    """EF21 (NeurIPS 2021): the greatest of what a gradient has beside all that was sent, after a whole first call."""

    def __init__(self) -> None:
        self.sent, self.sums = torch.zeros(()), torch.zeros(())

    def __call__(self, gradient: Tensor) -> Tensor:
        new = gradient - self.sent
        if self.sent.dim():
            rest = new.abs().topk(len(new) - round(DENSITY * len(new)), largest=False).indices
            new[rest] = 0
        self.sent = self.sent + new
        self.sums = self.sums + mean(new)
        return self.sums


def stepped_by(rule: Rule, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Replace gradients by what ``rule`` makes of those of all ranks, before each step of ``optimizer``."""

    def before(*_: object) -> None:
        found = [each.grad for each in model.parameters() if each.grad is not None]
        vector_to_parameters(rule(parameters_to_vector(found)), found)

    optimizer.register_step_pre_hook(before)


def averaged(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Make an outer Nesterov step after each STEPS of ``optimizer``: DiLoCo (arXiv 2311.08105)."""
    anchors = [nn.Parameter(each.detach().clone()) for each in model.parameters()]
    outer, made = torch.optim.SGD(anchors, 0.7, momentum=0.9, nesterov=True), 0

    def after(*_: object) -> None:
        nonlocal made
        made += 1
        if made % STEPS:
            return
        for anchor, each in zip(anchors, model.parameters(), strict=True):
            anchor.grad = mean(anchor.detach() - each.detach())
        outer.step()
        with torch.no_grad():
            for anchor, each in zip(anchors, model.parameters(), strict=True):
                each.copy_(anchor)

    optimizer.register_step_post_hook(after)


RULES: dict[str, Callable[[], Rule]] = {"one_bit": OneBit, "signum": Majority, "ef21": Shifted}
"""Names -> rules of gradients; DiLoCo has none."""


def follow(name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train ``model`` as the authors of ``name`` describe, by each step of ``optimizer``."""
    if name in RULES:
        stepped_by(RULES[name](), model, optimizer)
    else:
        averaged(model, optimizer)
