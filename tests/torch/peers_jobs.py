"""Jobs of ranks in the tests that PyTorch has of its own sparse all-reduce and of DDP with sparse gradients."""

from __future__ import annotations

import ast
import functools
import operator
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import cross_entropy, softmax
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.runtime.jobs import DEADLINE, bits

SIMPLE = "simple_sparse_reduce_tests"
SPARSE = ("agsparse", "balanced", "holders", "sparcml", "zen")
"""Schemes that never fill up with zeros what they send."""
ROWS, EACH = 10, 2
"""Rows and columns of the table; samples of a rank."""


def shipped_tests() -> Path | None:
    """Return the file of PyTorch's wheel that has ``SIMPLE``, if it ships one."""
    package = find_spec("torch.testing")
    folder = package.submodule_search_locations if package else None
    path = Path(folder[0], "_internal", "common_distributed.py") if folder else None
    return path if path and path.is_file() and SIMPLE in path.read_text("utf-8") else None


def simple_tests(rank: int, size: int, inputs: int) -> list[tuple[list[torch.Tensor], list[torch.Tensor]]]:
    """Return (the tensors of ``rank``, the sum of all) for each case of PyTorch.

    Only that function of the file is run: the whole imports packages that PyTorch does not bring.
    """
    path = shipped_tests()
    assert path is not None
    tree = ast.parse(path.read_bytes())
    tree.body = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == SIMPLE]
    names: dict[str, Any] = {
        "torch": torch, "operator": operator, "reduce": functools.reduce, "partial": functools.partial,
    }  # fmt: skip
    exec(compile(tree, str(path), "exec"), names)
    found: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = names[SIMPLE](rank, size, inputs)
    return found


def simple_sums(group: dist.ProcessGroup, schemes: list[str], inputs: int) -> list[str]:
    """Sum all of ``simple_tests``, with several tensors of a rank joined, as gloo does. Return fingerprints."""
    collectives = {scheme: zenc.load(scheme, group, deadline=DEADLINE) for scheme in schemes}
    found = []
    for given, (expected, *_) in simple_tests(group.rank(), group.size(), inputs):
        mine = sum(given[1:], given[0])
        of_gloo = mine.clone()
        dist.all_reduce(of_gloo, group=group)
        for scheme, collective in collectives.items():
            total = collective.all_reduce(mine)
            assert total.is_coalesced() and total.shape == mine.shape and total.sparse_dim() == mine.sparse_dim()
            for other in (expected, of_gloo):
                assert torch.equal(total.to_dense(), other.to_dense()), scheme
                if scheme in SPARSE:
                    assert torch.equal(total.indices(), other.coalesce().indices()), scheme
            found.append(bits(total))
    return found


class Classes(nn.Module):
    """A bag of rows with sparse gradients, and a softmax."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.EmbeddingBag(ROWS, ROWS, sparse=True)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return softmax(self.embedding(ids), dim=1)


def attached(ddp: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    zenc.attach(ddp, "balanced", deadline=DEADLINE)


def hooked(ddp: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    ddp.register_comm_hook(zenc.ZencState(zenc.load("balanced", group, deadline=DEADLINE), group), zenc.zenc_hook)


def written(ddp: DistributedDataParallel, group: dist.ProcessGroup) -> None:
    """Apply a user's own hook: the mean of a bucket that is sparse, as a future."""
    collective = zenc.load("balanced", group, deadline=DEADLINE)

    def hook(state, bucket):  # DDP refuses annotations that are strings
        return collective.all_reduce(bucket.buffer(), "mean", async_op=True).get_future()

    ddp.register_comm_hook(None, hook)


SEAMS: dict[str, Callable[[DistributedDataParallel, dist.ProcessGroup], None]] = {
    "attached": attached, "hooked": hooked, "written": written,
}  # fmt: skip


def sparse_gradients(group: dist.ProcessGroup, seam: str, view: bool) -> str:
    """Check that the gradient of all ranks' samples is that of one process with all of them, in several steps."""
    torch.manual_seed(0)
    rank, size = group.rank(), group.size()
    alone, parted = Classes(), Classes()
    parted.load_state_dict(alone.state_dict())
    ddp = DistributedDataParallel(parted, process_group=group, gradient_as_bucket_view=view)
    SEAMS[seam](ddp, group)
    for _ in range(2):
        ids, wanted = (torch.randint(0, ROWS, shape) for shape in ((EACH * size, 2), (EACH * size,)))
        alone.zero_grad()
        ddp.zero_grad()
        cross_entropy(alone(ids), wanted).backward()
        cross_entropy(ddp(ids.split(EACH)[rank]), wanted.split(EACH)[rank]).backward()
        gradient, expected = (model.embedding.weight.grad.coalesce() for model in (parted, alone))
        assert gradient.is_sparse and torch.equal(gradient.indices(), expected.indices())
        torch.testing.assert_close(gradient.values(), expected.values())
    return bits(gradient)
