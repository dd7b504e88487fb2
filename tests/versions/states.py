"""Jobs of ranks that save the states of a training, and go on from saved ones; each takes the group first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from zenc.torch.handle import Attachment

STEPS = 8


class Small(nn.Module):
    """A table and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(12, 2, sparse=True)
        self.layer = nn.Linear(2, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(ids))  # type: ignore[no-any-return]


class Trained:
    """Every object with a state, on one rank: two handles, an averager and a sharded optimizer, by
    ``folder``'s texts.
    """

    def __init__(self, group: dist.ProcessGroup, folder: Path) -> None:
        self.rank = group.rank()
        self.models: list[DistributedDataParallel] = []
        choice = zenc.compile(folder / "choice.zen", scheme="pick")
        self.table = nn.Parameter(torch.ones(6, 2))
        sums = zenc.load("balanced", group, deadline=30)
        self.by_name: dict[str, Any] = {
            "choosing": self._attached(group, choice, profiler=zenc.Profiler(every=1)),
            "keeping": self._attached(group, folder / "lossy.zen", dense=True, least_values=1),
            "averager": zenc.load_averager(folder / "averaging.zen", group, deadline=30),
            "rows": zenc.ShardedTableOptimizer([self.table], torch.optim.SparseAdam, sums, lr=0.1),
        }

    def _attached(self, group: dist.ProcessGroup, scheme: Any, **options: Any) -> Attachment:
        torch.manual_seed(0)
        self.models.append(DistributedDataParallel(Small(), process_group=group))
        return zenc.attach(self.models[-1], scheme, deadline=30, **options)

    def step(self, number: int) -> None:
        ids = torch.randint(0, 12, (3, 2), generator=torch.Generator().manual_seed(10 * number + self.rank))
        for model in self.models:
            model.zero_grad()
            model(ids).pow(2).sum().backward()
        self.by_name["averager"].average_parameters([torch.ones(2)])
        self.table.grad = torch.sparse_coo_tensor(ids[:1] % 6, torch.ones(2, 2), (6, 2), check_invariants=False)
        self.by_name["rows"].step()

    def states(self) -> dict[str, Any]:
        """Return name -> state, as it goes into a checkpoint."""
        return {name: each.state_dict() for name, each in self.by_name.items()}

    def load(self, states: dict[str, Any]) -> dict[str, str]:
        """Go on from ``states``; return name -> the error, or nothing."""
        found = {}
        for name, state in states.items():
            try:
                self.by_name[name].load_state_dict(state)
                found[name] = ""
            except zenc.ZencError as error:
                found[name] = str(error)
        return found


def save(group: dist.ProcessGroup, folder: str) -> None:
    """Train a little, and save this rank's states."""
    trained = Trained(group, Path(folder))
    for number in range(STEPS):
        trained.step(number)
    torch.save(trained.states(), Path(folder) / f"states.{group.rank()}.pt")


def read_again(
    group: dist.ProcessGroup, folder: str, texts: str, changes: dict[str, dict[str, Any]]
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return errors of loading this rank's states with ``changes``, the loaded states, and those saved then.

    The states are in ``folder``, and the schemes in ``texts``.
    """
    saved = torch.load(Path(folder) / f"states.{group.rank()}.pt", weights_only=True)
    saved = {name: {**state, **changes.get(name, {})} for name, state in saved.items()}
    trained = Trained(group, Path(texts))
    return trained.load(saved), saved, trained.states()
