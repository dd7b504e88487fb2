"""A script of torchrun that trains from checkpoint to checkpoint: ``elastic_training.py STEPS FOLDER``.

Each rank writes to ``FOLDER/begun`` what it began with, a line each time: rank, ranks, process, number of its host,
step,
and the sum of what all ranks had kept. In the middle all but the first host stand still, so that they can be killed
in a step of the others.
"""

import os
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import zenc


def main(steps: int, folder: Path) -> None:
    dist.init_process_group("gloo", timeout=timedelta(seconds=20))
    rank, size, host = dist.get_rank(), dist.get_world_size(), int(os.environ["HOST_NUMBER"])
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    file = folder / "checkpoint.pt"
    state = torch.load(file, weights_only=True) if file.exists() else {"step": 0}
    if state["step"]:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    ddp = DistributedDataParallel(model)
    handle = zenc.attach(ddp, "topk_a2a", dense=True, least_values=1)
    if state["step"]:
        handle.load_state_dict(state["zenc"])
    with (folder / "begun").open("a") as begun:
        begun.write(f"{rank} {size} {os.getpid()} {host} {state['step']} {kept(handle):.6g}\n")
    for step in range(state["step"], steps):
        if step == steps // 2 and host > 0:
            time.sleep(1000)
        optimizer.zero_grad()
        ddp(torch.randn(8, 32)).pow(2).sum().backward()
        optimizer.step()
        together = handle.state_dict(together=True)
        if rank == 0:
            saved = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "zenc": together}
            torch.save({**saved, "step": step + 1, "kept": summed(together)}, f"{file}.new")
            os.replace(f"{file}.new", file)
    dist.destroy_process_group()


def kept(handle: zenc.Attachment) -> float:
    """Return the sum of all ranks' residuals, or nothing before a first call."""
    assert handle.collective.keeper is not None
    own = [handle.residual(name).sum() for name in handle.collective.keeper.counts()]
    total = torch.stack(own).sum() if own else torch.zeros(())
    dist.all_reduce(total)
    return float(total)


def summed(state: dict[str, object]) -> float:
    tensors = state["residuals"]["tensors"]  # type: ignore[index]
    return float(sum(entry["residual"].sum() for entry in tensors.values()))


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
