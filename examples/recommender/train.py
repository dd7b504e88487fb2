"""Train a small recommender in several processes: two tables, AdamW, bfloat16, accumulation and checkpoints.

    torchrun --standalone --nproc-per-node 2 examples/recommender/train.py --steps 40 --checkpoint model.pt
    torchrun --standalone --nproc-per-node 2 examples/recommender/train.py --steps 80 --checkpoint model.pt   # goes on

A step touches few rows of the tables, and AdamW takes dense gradients alone: ``dense=`` names the tables, whose
gradients travel row by row and stay dense for the optimizer. What zenc needs is the one call of ``zenc.attach``, and
two lines for a checkpoint. Clicks are drawn at random, by popularity and by a hidden taste, so that the loss falls.
"""

from __future__ import annotations

import argparse
import contextlib
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc

USERS, ITEMS, WIDTH, BATCH = 20_000, 50_000, 32, 256
ACCUMULATED = 2
"""Batches a step."""
TABLES = ["users.weight", "items.weight"]


class Recommender(nn.Module):
    """Clicks by the vectors of a user and of an item, and a small network over both."""

    def __init__(self) -> None:
        super().__init__()
        self.users, self.items = nn.Embedding(USERS, WIDTH), nn.Embedding(ITEMS, WIDTH)
        self.top = nn.Sequential(nn.Linear(2 * WIDTH, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Return the logits [batch] of clicks of ``users`` on ``items``, int64 [batch]."""
        logits: torch.Tensor = self.top(torch.cat([self.users(users), self.items(items)], dim=1))
        return logits[:, 0]


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return users and items, int64 [batch], few of them often, and clicks, float32 [batch]."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    users, items = ((torch.rand(BATCH, generator=generator) ** 3 * many).long() for many in (USERS, ITEMS))
    return users, items, ((users + items) % 3 == 0).float()


def train(steps: int, scheme: str, checkpoint: Path | None) -> Recommender:
    """Return the model after ``steps``, those of the ``checkpoint`` among them, which is read and then written."""
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(Recommender())
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    handle = zenc.attach(model, scheme, dense=TABLES)
    begin = 0
    if checkpoint and checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        model.module.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        handle.load_state_dict(state["zenc"])
        begin = state["step"]
    for step in range(begin, steps):
        optimizer.zero_grad()
        for part in range(ACCUMULATED):
            users, items, clicks = batch(ACCUMULATED * step + part, rank)
            last = part == ACCUMULATED - 1
            with contextlib.nullcontext() if last else model.no_sync():
                with torch.autocast("cpu", torch.bfloat16):
                    loss = nn.functional.binary_cross_entropy_with_logits(model(users, items).float(), clicks)
                (loss / ACCUMULATED).backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
    kept = handle.state_dict(together=True)  # by all ranks, for any number of them
    if rank == 0:
        print(handle.summary())
        if checkpoint:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict(), "step": steps}
            torch.save({**state, "zenc": kept}, checkpoint)
    dist.barrier()
    return model.module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="steps in all, those of the checkpoint among them")
    parser.add_argument("--scheme", default="auto", help="a shipped scheme, or a .zen file")
    parser.add_argument("--checkpoint", type=Path, help="read from this file where it is there, and written at the end")
    given = parser.parse_args()
    dist.init_process_group("gloo")
    train(given.steps, given.scheme, given.checkpoint)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
