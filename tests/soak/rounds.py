"""Rounds of a soak, by a seed: the processes of a group, their calls, and a mishap to one of them.

SoakRound = members  scheme*  Summand*  window  way  Mishap?
Summand   = scheme  units x width  dtype  dense?  op           Mishap = kind  member  after  seconds
"""

import random
from dataclasses import dataclass
from functools import cache

import torch

LASTING, MORTAL = (0, 1, 2), (3, 4)
"""Processes that live as long as the soak, with watched resources; and those that may be killed."""
DEADLINE = 6.0
"""Seconds of a rank's longest wait."""
DTYPES = {"float32": torch.float32, "float64": torch.float64, "float16": torch.float16, "bfloat16": torch.bfloat16}
UNITS, WIDTHS = (1, 7, 300, 6_000, 20_000), (1, 4, 32)
WAYS = ("memory", "sockets", "gloo")
KINDS = {"none": 45, "pauses": 15, "kills": 15, "cuts": 12, "freezes": 8, "reshapes": 5}
"""Kinds of mishaps -> weights: a short or long stop, a death, a cut connection, another shape on a rank."""


@dataclass(frozen=True)
class Summand:
    """A call: the tensor [units, width] of each rank, dense or sparse COO, of whole numbers by ``salt``."""

    scheme: int
    units: int
    width: int
    dtype: str
    dense: bool
    op: str
    salt: int


@dataclass(frozen=True)
class Mishap:
    """A mishap of a ``kind`` of ``KINDS`` ``after`` seconds, for ``seconds``, to the ``member`` of that place."""

    kind: str
    member: int
    after: float
    seconds: float = 0.0


@dataclass(frozen=True)
class SoakRound:
    """A round. ``window``: calls that a rank has under way; 0 where it waits for each as it makes it."""

    seed: int
    number: int
    members: tuple[int, ...]
    schemes: tuple[str, ...]
    summands: tuple[Summand, ...]
    window: int
    way: str
    mishap: Mishap | None

    @property
    def is_harmless(self) -> bool:
        """True if no call may fail."""
        return self.mishap is None or self.mishap.kind == "pauses"


@cache
def schemes_for(size: int) -> tuple[str, ...]:
    """Return the shipped schemes whose sums among ``size`` ranks are exact, and the one that chooses."""
    from tests.support.shipped import SHIPPED, plan_of_shipped  # reads them all, which ranks need not
    from zenc.plan.requirements import allowed

    return (*(name for name in SHIPPED if list(allowed(plan_of_shipped(name), [size]))), "auto")


def round_of(seed: int, number: int) -> SoakRound:
    chance = random.Random(seed * 1_000_003 + number)
    members = tuple(chance.sample(LASTING + MORTAL, chance.choices((2, 3, 4, 5), (3, 4, 3, 2))[0]))
    known = schemes_for(len(members))
    schemes = tuple(chance.sample(known, min(len(known), chance.choice((1, 1, 2)))))
    count = chance.choice((4, 8, 16, 32))
    summands = tuple(_summand(chance, len(schemes), len(members)) for _ in range(count))
    mishap = _mishap(chance, members)
    return SoakRound(seed, number, members, schemes, summands, chance.choice((0, 0, 2)), chance.choice(WAYS), mishap)


def _summand(chance: random.Random, schemes: int, size: int) -> Summand:
    units, width = chance.choices(UNITS, (1, 2, 4, 3, 1))[0], chance.choice(WIDTHS)
    dtype = chance.choices(tuple(DTYPES), (5, 1, 1, 1))[0]
    exact = dtype in ("float32", "float64") and size in (2, 4)  # a mean is divided first
    op = "mean" if exact and chance.random() < 0.3 else "sum"
    return Summand(chance.randrange(schemes), units, width, dtype, chance.random() < 0.4, op, chance.randrange(1000))


def _mishap(chance: random.Random, members: tuple[int, ...]) -> Mishap | None:
    kind = chance.choices(tuple(KINDS), tuple(KINDS.values()))[0]
    after = chance.choice((0.0, 0.02, 0.1, 0.5)) * chance.random()
    may_die = [place for place, slot in enumerate(members) if slot in MORTAL]
    if kind == "none" or (kind == "kills" and not may_die):
        return None
    member = chance.choice(may_die) if kind == "kills" else chance.randrange(len(members))
    seconds = {"pauses": chance.uniform(0.05, DEADLINE / 4), "freezes": DEADLINE * 1.5}
    return Mishap(kind, member, after, seconds.get(kind, 0.0))


def gradient(of: Summand, rank: int) -> torch.Tensor:
    """Return the gradient of ``rank``: [units, width], dense or sparse COO, some of its rows twice."""
    ids, values = _rows(of, rank)
    shape, dtype = (of.units, of.width), DTYPES[of.dtype]
    if of.dense:
        return torch.zeros(shape, dtype=dtype).index_add_(0, ids[0], values.to(dtype))
    return torch.sparse_coo_tensor(ids, values.to(dtype), shape, check_invariants=False)


def is_sum(found: torch.Tensor, of: Summand, size: int) -> bool:
    """Return whether ``found`` is exactly the sum of ``size`` ranks; the mean is exact for the sizes that have it."""
    wanted = torch.zeros(of.units, of.width, dtype=torch.float64)
    for rank in range(size):
        ids, values = _rows(of, rank)
        wanted.index_add_(0, ids[0], values)
    return torch.equal(found.to_dense().to(torch.float64), wanted / size if of.op == "mean" else wanted)


def _rows(of: Summand, rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    chance = torch.Generator().manual_seed(of.salt * 64 + rank)
    ids = torch.randint(of.units, (1, max(1, of.units // 8)), generator=chance)
    return ids, torch.randint(-3, 4, (ids.shape[1], of.width), generator=chance).to(torch.float64)
