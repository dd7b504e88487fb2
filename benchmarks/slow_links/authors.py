"""Schemes as their authors describe them, in plain PyTorch: zenc's are held against these.

All gradients of a model are one vector. A rule gives that of a rank, and returns the mean that all ranks step by.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Rule: TypeAlias = Callable[[Tensor], Tensor]
DENSITY, MERGED, BLOCK, STEPS = 0.01, 0.001, 2048, 100
"""Parameters of zenc's schemes by default: shares that EF21 and gTop-k select, values of a scale, steps of DiLoCo."""
BETA = 0.9
"""The momentum of ``signum`` by default."""
CHUNK, COEFFICIENTS, DECAY = 64, 2, 0.999
"""Parameters of ``demo`` by default: values of a chunk, its coefficients that are sent, and decay."""


def mean(vector: Tensor) -> Tensor:
    vector = vector.clone()
    dist.all_reduce(vector)
    return vector / dist.get_world_size()


def scaled_signs(vector: Tensor) -> Tensor:
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
        sent = scaled_signs(whole)
        self.ranks = whole - sent
        total = mean(sent) + self.owners
        handed = scaled_signs(total)
        self.owners = total - handed
        return handed


class Majority:
    """Signum: signs of momentum, and the majority of them, at random in a tie (Bernstein et al., ICLR 2019)."""

    def __init__(self) -> None:
        self.momentum = torch.zeros(())
        self.draws = torch.Generator().manual_seed(1)

    def __call__(self, gradient: Tensor) -> Tensor:
        self.momentum = BETA * self.momentum + (1 - BETA) * gradient
        votes = mean(self.drawn(self.momentum.sign()))
        return self.drawn(votes.sign())

    def drawn(self, signs: Tensor) -> Tensor:
        draws = torch.randint(0, 2, signs.shape, generator=self.draws) * 2.0 - 1.0
        return torch.where(signs == 0, draws, signs)


class Shifted:
    """EF21 (NeurIPS 2021): the greatest of what a gradient has beside all that was sent, after a whole first call."""

    def __init__(self) -> None:
        self.sent, self.sums = torch.zeros(()), torch.zeros(())

    def __call__(self, gradient: Tensor) -> Tensor:
        new = gradient - self.sent
        new = greatest(new, DENSITY) if self.sent.dim() else new
        self.sent = self.sent + new
        self.sums = self.sums + mean(new)
        return self.sums


def greatest(vector: Tensor, share: float) -> Tensor:
    """Return ``vector`` with 0 in place of all but a ``share`` of its values, the greatest."""
    chosen = vector.abs().topk(round(share * len(vector))).indices
    return torch.zeros_like(vector).scatter(0, chosen, vector[chosen])


class Merged:
    """gTop-k (ICDCS 2019): the greatest of each sum of two ranks; a rank keeps its values that are in no result."""

    def __init__(self) -> None:
        self.kept = torch.zeros(())

    def __call__(self, gradient: Tensor) -> Tensor:
        whole = gradient + self.kept
        sent = greatest(whole, MERGED)
        sums = [torch.empty_like(sent) for _ in range(dist.get_world_size())]
        dist.all_gather(sums, sent)
        while len(sums) > 1:
            sums = [greatest(a + b, MERGED) for a, b in zip(sums[::2], sums[1::2], strict=True)]
        self.kept = torch.where((sent != 0) & (sums[0] != 0), 0, whole)
        return sums[0] / dist.get_world_size()


class Decoupled:
    """DeMo (arXiv 2411.19870): the greatest cosine coefficients of chunks of a momentum, which loses what was sent."""

    def __init__(self) -> None:
        self.momentum = torch.zeros(())
        at, wave = torch.arange(CHUNK) + 0.5, torch.arange(CHUNK)
        self.cosines = (torch.outer(wave, at) * math.pi / CHUNK).cos() * (2 / CHUNK) ** 0.5
        self.cosines[0] /= 2**0.5

    def __call__(self, gradient: Tensor) -> Tensor:
        self.momentum = DECAY * self.momentum + gradient
        chunks = functional.pad(self.momentum, (0, -len(gradient) % CHUNK)).view(-1, CHUNK) @ self.cosines.T
        chosen = chunks.abs().topk(COEFFICIENTS, 1).indices
        sent = torch.zeros_like(chunks).scatter(1, chosen, chunks.gather(1, chosen)) @ self.cosines
        sent = sent.flatten()[: len(gradient)]
        self.momentum = self.momentum - sent
        return mean(sent)


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


RULES: dict[str, Callable[[], Rule]] = {
    "one_bit": OneBit,
    "signum": Majority,
    "ef21": Shifted,
    "gtop_k": Merged,
    "demo": Decoupled,
}
"""Names -> rules of gradients; DiLoCo has none."""


def follow(name: str, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Train ``model`` as the authors of ``name`` describe, by each step of ``optimizer``."""
    if name in RULES:
        stepped_by(RULES[name](), model, optimizer)
    else:
        averaged(model, optimizer)
