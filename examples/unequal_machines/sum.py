"""Sums gradients on all ranks and holds the result against a dense sum in float64: torchrun ... sum.py SCHEME."""

from __future__ import annotations

import hashlib
import sys

import torch
import torch.distributed as dist

import zenc

ROWS, WIDTH, HELD = 10_000, 16, 200


def main(scheme: str) -> None:
    """One gradient a rank, of rows that are drawn at random; some are there twice."""
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)
    rows = torch.randint(0, ROWS, (1, HELD))
    gradient = torch.sparse_coo_tensor(rows, torch.randn(HELD, WIDTH), (ROWS, WIDTH), check_invariants=True)

    collective = zenc.load(scheme)
    total = collective.all_reduce(gradient).to_dense()

    exact = gradient.to_dense().double()
    dist.all_reduce(exact)
    assert torch.allclose(total.double(), exact, atol=1e-5)

    digests: list[str] = [""] * size
    dist.all_gather_object(digests, hashlib.sha256(total.numpy().tobytes()).hexdigest())
    assert len(set(digests)) == 1
    if rank == 0:
        print(f"{size} ranks hold the same {total.numel():,} numbers, which are those of the sum in float64")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
