"""Summaries of training with a scheme: bytes sent and those of DDP, the use of time, and slow ranks.

    Totals          = of one parameter on one rank: calls, bytes, seconds, seconds of waiting by peer
    TrainingSummary = scheme, ranks, rank -> parameter -> Totals               # of this rank, or of all

DDP's bytes are computed from the gradients that went through the scheme: 2 (n - 1) / n of the whole tensor in a dense
ring all-reduce; and in gloo's sparse one, a gather of all rows with their indices by all ranks.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from zenc.common.json_codec import Codec
from zenc.common.wording import aligned, count, seconds_text, share_text, size_text
from zenc.torch.records.call_log import Totals

_SUMMED = (
    "calls", "bytes_sent", "bytes_received", "bytes_ddp_sparse", "bytes_ddp_dense", "seconds", "measured", "trials",
    "chosen", "gained"
)  # fmt: skip
_HEAD = ("parameter", "calls", "sent", "DDP sparse", "DDP dense", "time", "waiting")
_KEPT = "kept / gradient"


def summed(several: Iterable[Totals]) -> Totals:
    """Return the sums of ``several`` totals, waiting by peer included, and the greatest of their residuals."""
    total = Totals()
    for each in several:
        for name in _SUMMED:
            setattr(total, name, getattr(total, name) + getattr(each, name))
        for peer, seconds in each.waited.items():
            total.waited[peer] = total.waited.get(peer, 0.0) + seconds
        if each.kept is not None:
            total.kept = max(total.kept or 0.0, each.kept)
    return total


@dataclass(frozen=True, slots=True, repr=False)
class TrainingSummary:
    """Statistics since a scheme was attached. ``by_rank``: rank -> parameter -> totals, of one rank or of all."""

    scheme: str
    ranks: int
    by_rank: Mapping[int, Mapping[str, Totals]]

    @property
    def parameters(self) -> dict[str, Totals]:
        """The totals by parameter, summed over the ranks in this summary."""
        names = dict.fromkeys(name for totals in self.by_rank.values() for name in totals)
        return {name: summed(each[name] for each in self.by_rank.values() if name in each) for name in names}

    @property
    def total(self) -> Totals:
        """The totals of all parameters."""
        return summed(self.parameters.values())

    @property
    def saved(self) -> dict[str, float]:
        """Bytes that DDP would have sent beyond what the scheme did: "sparse", "dense"; less than 0 if it sent less."""
        total = self.total
        return {"sparse": total.bytes_ddp_sparse - total.bytes_sent, "dense": total.bytes_ddp_dense - total.bytes_sent}

    @property
    def slowest(self) -> list[tuple[int, float]]:
        """Ranks, and the seconds that others waited for them; the slowest first."""
        return sorted(self.total.waited.items(), key=lambda each: -each[1])

    def to_json(self) -> dict[str, Any]:
        """Return the summary as JSON data."""
        total = self.total
        return {
            "scheme": self.scheme,
            "ranks": self.ranks,
            "total": {**asdict(total), "waiting_share": total.waiting_share},
            "saved": self.saved,
            "slowest": [{"rank": rank, "seconds": seconds} for rank, seconds in self.slowest],
            "parameters": {name: asdict(each) for name, each in self.parameters.items()},
            "by_rank": {rank: asdict(summed(each.values())) for rank, each in self.by_rank.items()},
        }

    def __str__(self) -> str:
        """Return a table, and its meaning in words."""
        return "\n".join(self._lines())

    def __repr__(self) -> str:
        total = self.total
        sent = size_text(total.bytes_sent)
        return f"<zenc.Summary {self.scheme} on {self.ranks} ranks: {total.calls} calls, {sent} sent>"

    def _lines(self) -> Iterator[str]:
        ranks = [str(rank) for rank in self.by_rank]
        of = f"rank {ranks[0]} of {self.ranks}" if len(ranks) == 1 else f"all {self.ranks} ranks"
        yield f"{self.scheme}, {of}"
        total = self.total
        if not total.calls and not total.trials:
            yield "nothing was synchronised yet"
            return
        rows = [(*_HEAD, _KEPT), *(_row(name, each) for name, each in self.parameters.items()), _row("total", total)]
        rows = rows if total.kept is not None else [row[:-1] for row in rows]
        yield from aligned(rows, range(1, len(rows[0])))
        for way, bytes in self.saved.items():
            whole = total.bytes_sent + bytes
            if whole:
                much = f"{size_text(abs(bytes))} ({share_text(abs(bytes) / whole)})"
                word = "less" if bytes >= 0 else "MORE"
                yield f"{much} {word} sent than by DDP's {way} all-reduce"
        if total.chosen:
            much = f"{seconds_text(abs(total.gained))} {'less' if total.gained >= 0 else 'MORE'}"
            yield f"chosen for the least seconds, not bytes: {much} than the first candidate would have taken"
        if total.trials:
            yield f"left out: {count(total.trials, 'call')} that tried candidates"
        if total.waited:
            waits = ", ".join(f"rank {rank} {seconds_text(seconds)}" for rank, seconds in self.slowest[:3])
            yield f"waited for: {waits}"


def _row(name: str, of: Totals) -> Sequence[str]:
    share = of.waiting_share
    bytes = (size_text(each) for each in (of.bytes_sent, of.bytes_ddp_sparse, of.bytes_ddp_dense))
    waited = "not measured" if share is None else share_text(share)
    return name, str(of.calls), *bytes, seconds_text(of.seconds), waited, "" if of.kept is None else f"{of.kept:.2f}"


def totals_to_json(of: Mapping[str, Totals]) -> bytes:
    """Return a message to other ranks."""
    return json.dumps(Codec().encode(of)).encode()


def totals_from_json(text: bytes) -> dict[str, Totals]:
    """Return the totals that another rank sent."""
    found: dict[str, Totals] = Codec().decode(dict[str, Totals], json.loads(text))
    return found
