"""Moved states: those of tables, at their new owners, once the ranks of a sharded optimizer are others.

    1. all ranks tell the number of their steps, or that they are new; one that is a step ahead undoes it
    2. the first of those with the fewest steps gives all its tables, and the options of its groups
    3. each that is not new gives the states of its rows; every rank keeps those of rows that it owns now
    4. rows that nobody has were owned by ranks that are gone: their states come from a checkpoint, or begin anew

A step ends nowhere before all ranks have pushed their gradients in it, so those that live are at most a step apart.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import torch

from zenc.errors import Diagnostic, SynchronisationError
from zenc.runtime.group.communicator import Communicator
from zenc.runtime.group.host_collectives import gather, given_by
from zenc.runtime.rebuilding.plain_data import packed, unpacked
from zenc.tables.owned_rows import OwnedRows, Piece

Lost: TypeAlias = "list[list[Piece]] | Literal['untouched'] | None"
"""States of rows of ranks that are gone: by table, those of a checkpoint; or as of rows never touched."""


@dataclass(frozen=True, slots=True)
class OldTables:
    """Tables as this rank owned them after ``steps``, in groups with ``options``; ``lost``: states of others' rows."""

    tables: Sequence[OwnedRows]
    steps: int
    options: Sequence[Mapping[str, Any]]
    lost: Lost


@dataclass(frozen=True, slots=True)
class KnownSteps:
    """The ``steps`` that each rank has made, without new ranks, and their states of ``lost`` rows."""

    steps: dict[int, int]
    lost: dict[int, str]

    @property
    def least(self) -> int:
        """The number of steps that all have made."""
        return min(self.steps.values())

    @property
    def root(self) -> int:
        """The rank that gives the common part."""
        return min(self.steps, key=lambda rank: (self.steps[rank], rank))

    def first_with(self, lost: str) -> int | None:
        """Return the first rank that has ``lost`` for rows of others."""
        return next((rank for rank, has in self.lost.items() if has == lost), None)


def known_steps(own: OldTables | None, tables: Sequence[OwnedRows], communicator: Communicator) -> KnownSteps | None:
    """Return the steps of all ranks of ``communicator``, as they exchange them; None where all are new.

    Raises SynchronisationError (``different-states``) on all of them for other tables, or steps that are too far apart.
    """
    shapes = [list(table.parameter.shape) for table in tables]
    lost = "" if own is None or own.lost is None else "untouched" if own.lost == "untouched" else "checkpoint"
    text = json.dumps([shapes, None if own is None else own.steps, lost]).encode()
    found = [json.loads(each) for each in communicator.worker.run(lambda: gather(communicator, text))]
    steps = {rank: made for rank, (_, made, _) in enumerate(found) if made is not None}
    if not steps:
        return None
    if any(other != shapes for other, *_ in found) or max(steps.values()) > min(steps.values()) + 1:
        message = f"the ranks have kept what does not belong together: steps by rank {steps}, of tables {shapes}"
        help = "give all ranks the same tables, and rebuild what took part in the same steps; or load a checkpoint"
        raise SynchronisationError(Diagnostic("different-states", message, help=help))
    return KnownSteps(steps, {rank: found[rank][2] for rank in steps})


class StateMove:
    """A move of states to ``tables`` as they are owned now, from ``own`` tables and others, by all ranks together."""

    def __init__(
        self, own: OldTables | None, tables: Sequence[OwnedRows], known: KnownSteps, communicator: Communicator
    ) -> None:
        self._own, self._tables, self._known, self._communicator = own, tables, known, communicator
        self._missing = [torch.ones(len(table.parameter), dtype=torch.bool, device="cpu") for table in tables]

    def run(self) -> list[dict[str, Any]]:
        """Move the states; return the options of groups.

        Raises SynchronisationError (``lost-rows``) on all ranks where nobody has the states of some rows.
        """
        for number in range(len(self._tables)):
            for rank in self._known.steps:
                self._take(number, *self._given_by(rank, lambda own, n=number: _piece_of(own.tables[n])))
        checkpoint = self._known.first_with("checkpoint")
        if checkpoint is not None and self._lacks():
            for number, rows, saved in self._given_by(checkpoint, self._of_checkpoint):
                self._take(number, rows, saved)
        if self._lacks() and self._known.first_with("untouched") is None:
            raise _lost(self._missing)
        return list(self._given_by(self._known.root, lambda own: own.options))

    def _given_by(self, rank: int, what: Any) -> Any:
        """Return, on all ranks, the result of ``what`` on the old tables of ``rank``."""
        own, communicator = self._own, self._communicator
        data = packed(what(own)) if own is not None and rank == communicator.rank else b""
        return unpacked(communicator.worker.run(lambda: given_by(communicator, rank, data)))

    def _take(self, number: int, rows: torch.Tensor, saved: Mapping[str, Any]) -> None:
        self._tables[number].take(rows, saved)
        self._missing[number][rows] = False

    def _lacks(self) -> bool:
        return any(bool(missing.any()) for missing in self._missing)

    def _of_checkpoint(self, own: OldTables) -> list[tuple[int, torch.Tensor, Mapping[str, Any]]]:
        """Return the table, rows and states of each piece of the checkpoint, of rows that nobody has."""
        assert own.lost is not None and own.lost != "untouched"
        pieces = [(number, piece) for number, of_table in enumerate(own.lost) for piece in of_table]
        return [(n, *_cut(piece, self._missing[n], own.tables[n].once)) for n, piece in pieces]


def _piece_of(table: OwnedRows) -> Piece:
    return table.ids, {**table.once, **table.states}


def _cut(piece: Piece, wanted: torch.Tensor, once: Mapping[str, Any]) -> Piece:
    """Return the rows of ``piece`` that are ``wanted`` [rows], and their states, with the table's numbers ``once``."""
    rows, saved = piece
    at = wanted[rows.cpu()]
    states = {name: each for name, each in saved.items() if isinstance(each, torch.Tensor) and each.dim() > 0}
    return rows.cpu()[at], {**{name: each[at.to(each.device)] for name, each in states.items()}, **once}


def _lost(missing: Sequence[torch.Tensor]) -> SynchronisationError:
    told = [
        f"{int(lacks.sum()):,} of {len(lacks):,} rows of table {n}" for n, lacks in enumerate(missing) if lacks.any()
    ]
    message = f"the states of {', '.join(told)} were with a rank that is gone"
    help = "rebuild(group, lost=state) takes them from the state of a checkpoint; lost='untouched' begins them anew"
    return SynchronisationError(Diagnostic("lost-rows", message, help=help))
