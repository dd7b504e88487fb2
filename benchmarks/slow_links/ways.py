"""Ways to train. Data: a new one is a line of ``WAYS``.

Way = name x kind x scheme x steps between looks x when to take it x parameters x optimizer
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import zenc
from benchmarks.slow_links import authors

DENSE, PLAIN, POWER, SPARSEST = "ddp", "ddp-sgd", "powerSGD_hook", "sparse_loco"
"""The ways that others are held against, and the one of fewest bytes."""
GOAL = 3.0
"""Bits a character on held-out text that a race goes to."""
CODED = str(Path(__file__).with_name("coded.zen"))


@dataclass(frozen=True, slots=True, eq=False)
class Way:
    """A way to train, looked at after each ``every`` steps; averagings after whole rounds.

    ``sgd``: the rate of SGD without momentum, in place of AdamW at 0.001. ``beside``: the way that its losses are held
    against, what its authors describe. ``raced``: among slow links, too.
    """

    name: str
    kind: Literal["torch", "author", "scheme", "averaging"]
    scheme: str
    every: int
    when: str = ""
    params: Mapping[str, float] = field(default_factory=dict)
    sgd: float = 0.0
    beside: str = ""
    raced: bool = True

    @property
    def label(self) -> str:
        return f"`{self.name}`"


WAYS = (
    Way(DENSE, "torch", "", 10, "the loss after equal steps counts most"),
    Way(PLAIN, "torch", "", 10, sgd=1.0, raced=False),
    Way(POWER, "torch", POWER, 20, "each step is to be one of all ranks, by Adam"),
    Way("power_sgd", "scheme", "power_sgd", 20, "so it is, on links slower than these", beside=POWER),
    Way("power_sgd-4", "scheme", "power_sgd", 20, params={"r": 4}, beside=POWER),
    Way("dgc", "scheme", "dgc", 20, params={"steps": 100}, sgd=0.1),
    Way("one_bit", "scheme", "one_bit", 20, "so it is, by SGD without momentum", sgd=1.0, beside="one_bit-plain"),
    Way("signum", "scheme", "signum", 20, sgd=0.0003, beside="signum-plain"),
    Way("ef21", "scheme", "ef21", 20, sgd=0.3, beside="ef21-plain"),
    Way("demo", "scheme", "demo", 20, sgd=1.0, beside="demo-plain"),
    Way("gtop_k", "scheme", "gtop_k", 20, sgd=1.0, beside="gtop_k-plain"),
    Way("loco", "scheme", "loco", 20, beside=DENSE),
    Way("fp8", "scheme", "fp8", 20, beside=DENSE),
    Way("diloco", "averaging", "diloco", 100, "ranks may train alone for long", beside="diloco-plain"),
    Way("diloco-20", "averaging", "diloco", 20, params={"steps": 20}),
    Way("diloco-4-bits", "averaging", CODED, 20),
    Way("diloco-2-bits", "averaging", CODED, 20, "ranks may train alone for a while", {"bits": 2}),
    Way("diloco-2-bits-40", "averaging", CODED, 40, params={"bits": 2, "steps": 40}),
    Way("streaming_diloco", "averaging", "streaming_diloco", 100, "nor may ranks wait for links"),
    Way(SPARSEST, "averaging", SPARSEST, 60, "bytes are what counts"),
    Way("one_bit-plain", "author", "one_bit", 20, sgd=1.0, raced=False),
    Way("signum-plain", "author", "signum", 20, sgd=0.0003, raced=False),
    Way("ef21-plain", "author", "ef21", 20, sgd=0.3, raced=False),
    Way("demo-plain", "author", "demo", 20, sgd=1.0, raced=False),
    Way("gtop_k-plain", "author", "gtop_k", 20, sgd=1.0, raced=False),
    Way("diloco-plain", "author", "diloco", 100, raced=False),
)
BY_NAME = {way.name: way for way in WAYS}


def prepared(way: Way, model: nn.Module) -> tuple[nn.Module, torch.optim.Optimizer]:
    """Return what to train by ``way``, and its optimizer."""
    parameters = model.parameters()
    optimizer = torch.optim.SGD(parameters, way.sgd) if way.sgd else torch.optim.AdamW(parameters, 0.001, fused=True)
    if way.kind == "author":
        authors.follow(way.scheme, model, optimizer)
        return model, optimizer
    if way.kind == "averaging":
        zenc.Averager(model, way.scheme, params=way.params).follow(optimizer)
        return model, optimizer
    # with several buckets torch's hook makes all-reduces in another order on each rank, and gloo fails
    ddp = DistributedDataParallel(model, bucket_cap_mb=100 if way.scheme else None)
    if way.scheme == POWER:
        state = PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=2, warm_start=True)
        ddp.register_comm_hook(state, powerSGD_hook)
    elif way.scheme:
        zenc.attach(ddp, way.scheme, dense=True, params=way.params)
    return ddp, optimizer
