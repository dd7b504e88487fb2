"""The report of a run, made of the records of all ranks.

    Report = settings x machine x bounds x (peer -> Row)

A call takes from the first rank that starts it to the last that ends it, by the clock that all ranks share. Ratios are
paired: the time of a peer over that of the reference in the same round, so that slow rounds hit both.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from benchmarks.lab.settings import Run, Settings
from zenc.gradients.index_sets import Gradients, figures
from zenc.lab.cluster import bits_per_second


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the busiest rank: ``receive_bytes`` (B1), ``bandwidth_bytes`` (B2); ``seconds`` is B2 over the rate."""

    receive_bytes: int
    bandwidth_bytes: int
    seconds: float | None


def bounds(of: Gradients, bits_per_second: float | None) -> Bounds:
    """Return the bounds of a sum of the gradients ``of`` all ranks; without a rate those in bytes alone.

    B1: a rank receives every unit that another rank holds at least once. B2: ``zenc.gradients.index_sets``.
    """
    holders = of.holders()
    union = int(np.count_nonzero(holders))
    alone = [int(np.count_nonzero(holders[ids] == 1)) for ids in of.held]
    bandwidth = figures(of).bound_bytes
    seconds = bandwidth * 8 / bits_per_second if bits_per_second else None
    return Bounds((union - min(alone)) * of.unit_bytes, bandwidth, seconds)


@dataclass(frozen=True, slots=True)
class Spread:
    """A median between its quartiles."""

    low: float
    median: float
    high: float


@dataclass(frozen=True, slots=True)
class Row:
    """Results of one peer. Bytes are those of the busiest rank, in a median round.

    ``sent`` and ``received`` are those of the interface, which counts all peers alike, or on loopback by the peer's own
    count, if it has one. ``wire`` is the share of the link that the busiest rank filled, ``processor`` the share of all
    cores that the ranks used.
    """

    rounds: int
    seconds: Spread
    ratio: Spread
    counted_sent: int | None
    counted_received: int | None
    interface_sent: int | None
    interface_received: int | None
    wire: float | None
    processor: float

    @property
    def sent(self) -> int | None:
        return self.counted_sent if self.interface_sent is None else self.interface_sent

    @property
    def received(self) -> int | None:
        return self.counted_received if self.interface_received is None else self.interface_received


@dataclass(frozen=True, slots=True)
class Report:
    settings: Settings
    machine: dict[str, Any]
    bounds: Bounds
    rows: dict[str, Row]
    samples: dict[str, list[list[dict[str, Any]]]]

    def to_json(self) -> dict[str, Any]:
        """Return everything, with every sample of every rank: [peer][rank][call]."""
        return {
            "settings": self.settings.to_json(),
            "machine": self.machine,
            "bounds": asdict(self.bounds),
            "peers": {name: {**asdict(row), "bounds": over(row, self.bounds)} for name, row in self.rows.items()},
            "samples": self.samples,
        }


def spread(values: Sequence[float]) -> Spread:
    """Return quartiles by linear interpolation between the values."""
    if len(values) == 1:
        return Spread(values[0], values[0], values[0])
    low, middle, high = quantiles(values, n=4, method="inclusive")
    return Spread(low, middle, high)


def over(row: Row, by: Bounds) -> dict[str, float | None]:
    """Return how far ``row`` is above the bounds: received over B1, sent over B2, time over B2 / rate."""
    return {
        "receive": ratio(row.received, by.receive_bytes),
        "bandwidth": ratio(row.sent, by.bandwidth_bytes),
        "time": ratio(row.seconds.median, by.seconds),
    }


def ratio(value: float | None, base: float | None) -> float | None:
    return None if value is None or not base else value / base


Records = Sequence[dict[str, Any]]
"""Notes of the ranks of a run, one a rank."""


def report(settings: Settings, by: Bounds, records: Records) -> Report:
    samples = samples_of(settings, records)
    return Report(settings, records[0]["machine"], by, rows_of(settings, records), samples)


def samples_of(run: Run[Any], records: Records) -> dict[str, list[list[dict[str, Any]]]]:
    return {name: [record["samples"][name] for record in records] for name in run.peers}


def rows_of(run: Run[Any], records: Records) -> dict[str, Row]:
    calls = {name: counted_rounds(of_peer) for name, of_peer in samples_of(run, records).items()}
    base = {number: taken(call) for number, call in calls[run.reference].items()}
    rate = bits_per_second(run.rate) if run.rate else None
    return {name: row(of_peer, base, rate, records[0]["machine"]["cores"]) for name, of_peer in calls.items()}


Call = list[dict[str, Any]]
"""The samples of all ranks of one call."""


def counted_rounds(of_peer: Sequence[Sequence[dict[str, Any]]]) -> dict[int, Call]:
    """Return the calls of a peer by round, without those that warm up."""
    calls = [list(call) for call in zip(*of_peer, strict=True)]
    return {call[0]["round"]: call for call in calls if call[0]["round"] >= 0}


def taken(call: Call) -> float:
    return float(max(s["ended"] for s in call) - min(s["started"] for s in call))


def row(calls: dict[int, Call], base: dict[int, float], rate: float | None, cores: int) -> Row:
    seconds = {number: taken(call) for number, call in calls.items()}
    paired = [took / base[number] for number, took in seconds.items() if number in base]
    sent = busiest(calls, "interface", 0)
    wires = [busy(call) * 8 / rate / taken(call) for call in calls.values()] if rate else None
    used = [sum(s["processor"] for s in call) / cores / taken(call) for call in calls.values()]
    return Row(
        rounds=len(calls),
        seconds=spread(list(seconds.values())),
        ratio=spread(paired),
        counted_sent=busiest(calls, "counted", 0),
        counted_received=busiest(calls, "counted", 1),
        interface_sent=sent,
        interface_received=busiest(calls, "interface", 1),
        wire=median(wires) if wires else None,
        processor=median(used),
    )


def busiest(calls: dict[int, Call], counter: str, way: int) -> int | None:
    """Return the bytes of the rank with most of them, in the median round."""
    if any(s[counter] is None for call in calls.values() for s in call):
        return None
    return round(median(max(int(s[counter][way]) for s in call) for call in calls.values()))


def busy(call: Call) -> int:
    """Return the bytes through the fullest direction of the fullest link."""
    return max(int(count) for s in call for count in s["interface"])
