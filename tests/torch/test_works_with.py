"""Rows of the page "works with", and a job for each."""

import contextlib
import copy
import pickle
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.tables.sharded_jobs import beside_ddp
from tests.tables.test_adapters import fsdp

ROWS, WIDTH, STEPS, DEADLINE = 60, 4, 3, 30
SCHEME = "balanced"


class Compared(NamedTuple):
    """Tensors or error ids that zenc gave, and those expected; tensors may differ by ``rtol`` and ``atol``."""

    ours: list[Any]
    expected: list[Any]
    rtol: float = 0.0
    atol: float = 0.0

    def differences(self) -> list[str]:
        """Describe differences; return nothing where all is as expected, and there was something to compare."""
        found = [] if self.ours and len(self.ours) == len(self.expected) else ["nothing to compare, or not as much"]
        for ours, expected in zip(self.ours, self.expected, strict=False):
            if isinstance(ours, str):
                found += [ours] if ours != expected else []
                continue
            try:
                torch.testing.assert_close(ours, expected, rtol=self.rtol, atol=self.atol)
            except AssertionError as error:
                found.append(str(error))
        return found


class Model(nn.Module):
    """A sparse table and a bag of rows, between dense layers."""

    def __init__(self, dtype: torch.dtype = torch.float32, **table: Any) -> None:
        super().__init__()
        self.words = nn.Embedding(ROWS, WIDTH, sparse=True, dtype=dtype, **table)
        self.bags = nn.EmbeddingBag(ROWS, WIDTH, sparse=True, mode="sum", dtype=dtype)
        self.head = nn.Linear(WIDTH, 2, dtype=dtype)
        self.spare = nn.Linear(WIDTH, 2, dtype=dtype)

    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids).mean(1) + self.bags(ids)

    def forward(self, ids: torch.Tensor, spare: bool = False) -> torch.Tensor:
        hidden = self.hidden(ids)
        return self.head(hidden) + self.spare(hidden) if spare else self.head(hidden)


def ids(rank: int, step: int) -> torch.Tensor:
    return torch.randint(0, ROWS, (4, 5), generator=torch.Generator().manual_seed(10 * step + rank))


Row = Callable[[dist.ProcessGroup], Compared]
Step = Callable[[nn.Module, torch.optim.Optimizer, int], None]


def plainly(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Run a step of training."""
    optimizer.zero_grad()
    model(ids(dist.get_rank(), step), True).float().square().sum().backward()
    optimizer.step()


def compared(
    group: dist.ProcessGroup,
    step: Step = plainly,
    make: Callable[[], nn.Module] = Model,
    optimizer: Callable[..., torch.optim.Optimizer] = torch.optim.SGD,
    attached: dict[str, Any] | None = None,
    compiled: str = "",
    tolerance: float = 1e-5,
    **ddp: Any,
) -> Compared:
    """Train with zenc and with DDP alone, by ``step``; return the parameters of both."""
    found = []
    for with_zenc in (True, False):
        torch.manual_seed(0)
        made = make()
        made = torch.compile(made, backend="aot_eager") if compiled == "inside" else made
        model = DistributedDataParallel(made, process_group=group, **ddp)
        if with_zenc:
            handle = zenc.attach(model, SCHEME, **{"deadline": DEADLINE, **(attached or {})})
        run = torch.compile(model, backend="aot_eager") if compiled == "outside" else model
        training = optimizer(model.parameters(), lr=0.05)
        for number in range(STEPS):
            step(run, training, number)
        if with_zenc:
            assert handle.stats and all(each["units_out"] > 0 for each in handle.stats.values())
        found.append([each.detach().float() for each in model.parameters()])
    return Compared(*found, tolerance, tolerance)


def accumulated(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    for part in range(3):
        with contextlib.nullcontext() if part == 2 else model.no_sync():
            model(ids(dist.get_rank(), 7 * step + part), True).square().sum().backward()
    optimizer.step()


def uneven(model: Any, optimizer: torch.optim.Optimizer, step: int) -> None:
    with model.join():
        for part in range(1 + dist.get_rank()):
            _of_one(model, optimizer, 7 * step + part)


def cast(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = model(ids(dist.get_rank(), step), True)
    out.float().square().sum().backward()
    optimizer.step()


def scaled(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=64.0)
    optimizer.zero_grad()
    scaler.scale(model(ids(dist.get_rank(), step), True).square().sum()).backward()
    scaler.step(optimizer)
    scaler.update()


class Checkpointed(Model):
    def hidden(self, ids: torch.Tensor) -> torch.Tensor:
        from torch.utils.checkpoint import checkpoint

        return checkpoint(super().hidden, ids, use_reentrant=False)


def _tied() -> nn.Module:
    model = Model()
    model.bags.weight = model.words.weight
    return model


def _sometimes(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    model(ids(dist.get_rank(), step), (step + dist.get_rank()) % 2 == 0).square().sum().backward()
    optimizer.step()


def _dense() -> nn.Module:
    return nn.Sequential(nn.Embedding(ROWS, WIDTH), nn.Flatten(), nn.Linear(5 * WIDTH, 2))


def _of_one(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    model(ids(dist.get_rank(), step)).square().sum().backward()
    optimizer.step()


class Tables(nn.Module):
    """Two sparse tables, for optimizers that take no dense gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.others = (nn.Embedding(ROWS, WIDTH, sparse=True) for _ in range(2))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.words(ids) * self.others(ids)  # added, both gradients share memory, which DDP alone divides twice


def _clipped(model: nn.Module, optimizer: torch.optim.Optimizer, step: int) -> None:
    optimizer.zero_grad()
    model(ids(dist.get_rank(), step), True).square().sum().backward()
    zenc.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()


def _copies(group: dist.ProcessGroup) -> Compared:
    """Return gradients of copies, which are of this rank alone, beside those of a model that was never attached."""
    torch.manual_seed(0)
    model = DistributedDataParallel(Model(), process_group=group)
    untouched = copy.deepcopy(model.module)
    zenc.attach(model, SCHEME, deadline=DEADLINE)
    alone = _gradients(untouched, group)
    copies = (copy.deepcopy(model.module), pickle.loads(pickle.dumps(model.module)))
    return Compared([each for copied in copies for each in _gradients(copied, group)], alone * len(copies))


def _gradients(model: nn.Module, group: dist.ProcessGroup) -> list[torch.Tensor]:
    model(ids(group.rank(), 0)).sum().backward()
    return [each.grad.to_dense() for each in model.parameters() if each.grad is not None]


def _under_fsdp(group: dist.ProcessGroup) -> Compared:
    whole, ours = fsdp(group, [None, {"width": 4}])
    return Compared(ours, whole, 1e-6, 1e-5)


def _sharded(group: dist.ProcessGroup) -> Compared:
    result = beside_ddp(group, SCHEME)
    return Compared(result["sharded"], result["plain"], 1e-4, 1e-6)


def _refusal(model: nn.Module) -> str:
    try:
        zenc.attach(model, SCHEME)
    except zenc.SchemeError as error:
        return error.diagnostics[0].id
    return "attached"


def _half(dtype: torch.dtype) -> Row:
    """Train in ``dtype`` and, since torch's own sparse all-reduce of 16 bits fails, in float32 for a reference."""

    def run(group: dist.ProcessGroup) -> Compared:
        found = []
        for each in (dtype, torch.float32):
            torch.manual_seed(0)
            model = DistributedDataParallel(Tables().to(each), process_group=group)
            zenc.attach(model, SCHEME, deadline=DEADLINE)
            for part in range(3):
                with contextlib.nullcontext() if part == 2 else model.no_sync():
                    model(ids(group.rank(), part)).float().square().sum().backward()
            found.append([each.grad.float().to_dense() for each in model.parameters()])
        return Compared(*found, 0.05, 0.1)

    return run


def row(**options: Any) -> Row:
    return lambda group: compared(group, **options)


TRIED: dict[str, Row] = {
    "no_sync()": row(step=accumulated),
    "join()": row(step=uneven, make=_dense, attached={"dense": ["0.weight"]}),
    "static_graph=True": row(static_graph=True),
    "find_unused_parameters=True": row(step=_sometimes, find_unused_parameters=True),
    "gradient_as_bucket_view=True": row(gradient_as_bucket_view=True),
    "torch.autocast": row(step=cast, tolerance=1e-2),
    "torch.amp.GradScaler": row(step=scaled),
    "bfloat16 tables": _half(torch.bfloat16),
    "float16 tables": _half(torch.float16),
    "float64 tables": row(make=lambda: Model(torch.float64)),
    "padding_idx=": row(make=lambda: Model(padding_idx=3)),
    "max_norm=": row(make=lambda: Model(max_norm=1.0)),
    "tied tables": row(make=_tied),
    "torch.utils.checkpoint": row(make=Checkpointed),
    "DDP(torch.compile(model))": row(compiled="inside"),
    "torch.compile(ddp_model)": row(compiled="outside"),
    "SGD, Adagrad": row(optimizer=torch.optim.Adagrad),
    "SparseAdam": row(step=_of_one, make=Tables, optimizer=torch.optim.SparseAdam, tolerance=1e-3),
    "Adam, AdamW": row(step=_of_one, make=_dense, optimizer=torch.optim.AdamW, attached={"dense": ["0.weight"]}),
    "zenc.clip_grad_norm_": row(step=_clipped),
    "copies and pickles of the model": _copies,
    "zenc.ShardedTableOptimizer": _sharded,
    "FSDP2": _under_fsdp,
    "no DDP": lambda _: Compared([_refusal(Model()), _refusal(nn.DataParallel(Model()))], ["not-ddp"] * 2),
}
"""Rows of the page, by their first column."""


def tried(group: dist.ProcessGroup, name: str) -> list[str]:
    """Return the differences that the row ``name`` finds."""
    return TRIED[name](group).differences()


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "works_with.md"


def test_the_page_has_the_rows_that_are_tried() -> None:
    rows = re.findall(r"^\| `?([^|`]+?)`? \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert [row for row in rows if row != "with" and not row.startswith("---")] == list(TRIED)


@pytest.mark.parametrize("name", TRIED)
def test_training_is_that_of_ddp_alone(two, name: str) -> None:
    assert two.run("tests.torch.test_works_with:tried", name=name) == [[], []]
