"""Scenarios: the actions of the ranks of a run, and faults; all of it from a seed.

Scenario = size  scheme*  CallSpec*  window  Weather  Change?  Fault*  rejoins
Fault    = kind  rank  at: operations of that rank before it  ...
Change   = of one rank: its calls in another order, one less, one of another shape or operation, another scheme
"""

import math
import random
from dataclasses import dataclass, replace

from tests.faults.network import Weather

DEADLINE = 30.0
"""Seconds of a rank's longest wait."""


@dataclass(frozen=True)
class CallSpec:
    """A call of the scheme with index ``scheme``: a tensor of ``units``, dense or of rows, with values by ``salt``."""

    scheme: int
    units: int
    dense: bool
    op: str = "sum"
    salt: int = 0


@dataclass(frozen=True)
class Fault:
    """An event of ``rank``, after ``at`` of its operations on the network, or at its statement ``at`` (``raises``).

    ``kills``: it dies, and its host closes its connections. ``vanishes``: with its host. ``freezes``: for ``seconds``,
    as when stopped. ``stalls``: nothing arrives from it at ``peer`` for ``seconds``. ``cuts``: the connection to
    ``peer`` is reset. ``slows``: each of its turns takes up to ``seconds``. ``raises``: a statement of its call fails.
    ``damages``: byte ``byte`` of the next headers to ``peer`` has the bits of ``flip`` flipped.
    """

    kind: str
    rank: int
    at: int
    peer: int = 0
    seconds: float = math.inf
    at_statement: bool = False
    byte: int = 0
    flip: int = 0


CALM = Weather()
LOUD = ("kills", "cuts", "raises")
"""Faults that peers learn of by their connections, without waiting for a deadline."""


@dataclass(frozen=True)
class Change:
    """A deviation of ``rank``: a ``call`` in another order, left out, reshaped or averaged, or ``another`` scheme."""

    kind: str
    rank: int
    call: int


@dataclass(frozen=True)
class Scenario:
    """Everything about a run. ``window``: calls that a rank has under way, 0 where it waits for each call at once.

    ``eager``: see ``Scheduler``. ``rejoins``: after a failure the ranks make a new group, and one more call.
    ``restarts``: a rank that has died comes back after that many seconds, or never. ``streams``: messages go over
    connections of zenc's own, and not over gloo's; ``hubs``: over those of the C++ itself.
    """

    seed: int
    size: int
    schemes: tuple[str, ...]
    calls: tuple[CallSpec, ...]
    window: int = 0
    weather: Weather = CALM
    eager: float = 0.0
    faults: tuple[Fault, ...] = ()
    change: Change | None = None
    rejoins: bool = False
    restarts: float = math.inf
    streams: bool = False
    hubs: bool = False

    def calls_of(self, rank: int) -> tuple[CallSpec, ...]:
        change, calls = self.change, list(self.calls)
        if change is None or change.rank != rank:
            return self.calls
        place, call = change.call, self.calls[change.call]
        match change.kind:
            case "swaps":
                other = (place + 1) % len(calls)
                calls[place], calls[other] = calls[other], calls[place]
            case "skips":
                del calls[place]
            case "reshapes":
                calls[place] = replace(call, units=call.units + 1)
            case "averages":
                calls[place] = replace(call, op="mean")
        return tuple(calls)

    def schemes_of(self, rank: int) -> tuple[str, ...]:
        if self.change and self.change.kind == "another" and self.change.rank == rank:
            return ("dense_ring" if self.schemes[0] != "dense_ring" else "balanced", *self.schemes[1:])
        return self.schemes


SCHEMES = ("balanced", "holders", "dense_ring", "sparcml", "agsparse", "zen")
UNITS = (1, 7, 60, 300, 6000)
"""Rows of 4 values: 6,000 of them make messages of more than one packet."""


def scenario_of(seed: int, schemes: tuple[str, ...] = SCHEMES) -> Scenario:
    """Draw the scenario of ``seed``: in 25 % no call may fail, in 17 % a rank deviates."""
    random_ = random.Random(seed * 7919 + 1)
    size = random_.choices((2, 3, 4, 5), (3, 5, 3, 1))[0]
    chosen = tuple(random_.sample(schemes, random_.choices((1, 2), (3, 1))[0]))
    calls = tuple(_call(random_, len(chosen)) for _ in range(random_.choice((1, 2, 2, 3))))
    weather = Weather(
        random_.choice((0.0005, 0.01, 0.02)), random_.choice((1.0, 1.0, 20.0)), random_.choice((0, 1, 1000))
    )
    window, eager = random_.choice((0, 0, 2, 3)), random_.choice((0.0, 0.02, 0.2))
    plain = Scenario(seed, size, chosen, calls, window, weather, eager, streams=seed % 2 == 1)
    kind = random_.random()
    if kind < 0.25:
        return replace(plain, faults=_harmless(random_, size) if random_.random() < 0.5 else ())
    if kind < 0.42:
        change = _change(random_, size, len(calls))
        faults = _harmless(random_, size) if random_.random() < 0.3 else ()
        return replace(plain, change=change, faults=faults, rejoins=random_.random() < 0.3)
    faults = tuple(_fault(random_, size) for _ in range(random_.choice((1, 1, 1, 2))))
    restarts = random_.choice((0.0, 2.0, 40.0))
    return replace(plain, faults=faults, rejoins=random_.random() < 0.5, restarts=restarts)


def _call(random_: random.Random, schemes: int) -> CallSpec:
    scheme, units = random_.randrange(schemes), random_.choices(UNITS, (1, 2, 4, 4, 1))[0]
    return CallSpec(scheme, units, random_.random() < 0.4, "sum", random_.randrange(3))


def _harmless(random_: random.Random, size: int) -> tuple[Fault, ...]:
    """Draw a fault shorter than the deadline, by which nobody may fail."""
    rank, peer = random_.sample(range(size), 2)
    kind = random_.choice(("stalls", "freezes", "slows"))
    seconds = 0.005 if kind == "slows" else random_.uniform(0.1, DEADLINE / 3)
    return (Fault(kind, rank, random_.randrange(_OPERATIONS), peer, seconds),)


_OPERATIONS = 40
"""Typical number of a rank's network operations in a run."""


def _fault(random_: random.Random, size: int) -> Fault:
    rank, peer = random_.sample(range(size), 2)
    kind = random_.choices(
        ("kills", "vanishes", "freezes", "stalls", "cuts", "raises", "slows"), (4, 2, 2, 3, 2, 2, 1)
    )[0]
    seconds = random_.choice((0.5, 20.0, 2 * DEADLINE, math.inf))
    if kind == "slows":
        seconds = 0.005
    at_statement = kind == "raises" or random_.random() < 0.2
    return Fault(kind, rank, random_.randrange(12 if at_statement else _OPERATIONS), peer, seconds, at_statement)


def _change(random_: random.Random, size: int, calls: int) -> Change:
    kind = random_.choice(("swaps", "skips", "reshapes", "averages", "another"))
    return Change(kind, random_.randrange(size), random_.randrange(calls))
