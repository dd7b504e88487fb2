"""Training by ranks that one process plays: one model, n gradients a step, n collectives of real plans and kernels.

    Trainer = model x optimizer x (collective, batches)* of n ranks
    Look    = step, held-out bits a character, loss, bytes that a rank has sent, residual over gradient

Ranks are threads while they sum, and messages go through memory. All else of a call is what it is between processes,
so n processes under DDP train to the same bits (tests/benchmarks/test_convergence.py).
"""

import hashlib
import math
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import zenc
from benchmarks.convergence.characters import Sizes, Text, batches, bits_of, loss_of, new_model, text, windows
from benchmarks.convergence.runs import Run
from tests.support.local import collectives
from zenc.codegen.artifact import Artifact

CHECKED = 10
"""Steps between two comparisons of the sums of all ranks."""


@dataclass(frozen=True, slots=True)
class Look:
    """A look at a run: its step, its quality and its cost.

    ``left``: the norm of what rank 0 left out, with all that it keeps, over that of its gradient; None for a lossless
    scheme.
    """

    step: int
    bits: float
    loss: float
    sent: int
    left: float | None


def compiled(scheme: str, ranks: int) -> Artifact:
    """Return the ``scheme``, a text or a shipped one's name, compiled for ``ranks`` ranks."""
    return zenc.compile_text(scheme, ranks=ranks) if "{" in scheme else zenc.compile(scheme, ranks=ranks)


def digest(parameters: Iterable[Tensor]) -> str:
    """Return the digest of all ``parameters``, of any shapes: equal for runs that are equal to the bit."""
    return hashlib.sha256(b"".join(each.detach().numpy().tobytes() for each in parameters)).hexdigest()[:16]


class Trainer:
    """The training of one run at one seed, step by step."""

    def __init__(self, run: Run, seed: int, sizes: Sizes, of: Text | None = None) -> None:
        self.run, self.sizes, self.text = run, sizes, of or text()
        self.model = new_model(sizes, seed)
        self.names = [(name, tuple(parameter.shape)) for name, parameter in self.model.named_parameters()]
        self.parameters = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.parameters, lr=run.rate, momentum=run.momentum)
        self.gradients = torch.empty(run.ranks, sum(each.numel() for each in self.parameters))
        self.drawn = [batches(seed, rank) for rank in range(run.ranks)]
        self.collectives = collectives(compiled(run.scheme, run.ranks), run.ranks)
        self.pool = ThreadPoolExecutor(run.ranks)
        self.steps = self.sent = 0
        self.loss = math.nan

    def step(self) -> None:
        """Make a step of all ranks: their gradients, the mean of these by the scheme, and the update."""
        pairs = zip(self.drawn, self.gradients, strict=True)
        losses = [self.gradient(generator, gradient) for generator, gradient in pairs]
        self.loss = sum(losses) / len(losses)
        mean = self.reduced()
        of_each = torch.split(mean, [each.numel() for each in self.parameters])
        for parameter, of_it in zip(self.parameters, of_each, strict=True):
            parameter.grad = of_it.view_as(parameter)
        self.optimizer.step()
        self.steps += 1

    def gradient(self, generator: torch.Generator, out: Tensor) -> float:
        """Return the loss of the next batch of a rank, and in ``out`` [parameters] its gradient."""
        batch = windows(self.text.train, self.sizes.batch, self.sizes.context, generator)
        loss = loss_of(self.model, batch)
        torch.cat([g.flatten() for g in torch.autograd.grad(loss, self.parameters)], out=out)
        return float(loss.detach())

    def reduced(self) -> Tensor:
        """Return the mean [parameters] of the gradients, as the scheme makes it, which is the same on all ranks."""
        calls = [
            self.pool.submit(collective.all_reduce, gradient, "mean", name=self.names)
            for collective, gradient in zip(self.collectives, self.gradients, strict=True)
        ]
        means: list[Tensor] = [call.result() for call in calls]
        if self.steps % CHECKED == 0 and not all(torch.equal(means[0], other) for other in means[1:]):
            raise AssertionError(f"{self.run.name}: the ranks hold different sums after step {self.steps}")
        self.sent += self.collectives[0].stats["bytes_sent"]
        return means[0]

    def look(self) -> Look:
        """Return the quality of the model on the held-out text, and its cost so far."""
        bits = bits_of(self.model, self.text, self.sizes.context)
        loss = self.collectives[0].stats.get("loss")
        return Look(self.steps, bits, self.loss, self.sent, loss["residual_over_gradient"] if loss else None)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that a run goes on from: model, optimizer, batches, and the collective of each rank."""
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "batches": [generator.get_state() for generator in self.drawn],
            "collectives": [collective.state_dict() for collective in self.collectives],
            "counted": (self.steps, self.sent),
        }

    def load_state_dict(self, state: dict[str, Any], forget: bool = False) -> None:
        """Go on from ``state``; with ``forget`` as if nothing had been kept by the scheme."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for generator, drawn in zip(self.drawn, state["batches"], strict=True):
            generator.set_state(drawn)
        if not forget:
            list(self.pool.map(lambda of, kept: of.load_state_dict(kept), self.collectives, state["collectives"]))
        self.steps, self.sent = state["counted"]
