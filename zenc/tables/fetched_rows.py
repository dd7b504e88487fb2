"""Fetched rows of a table: those whose current values this rank has, where owners keep updates until asked.

    FetchedRows = OwnedRows  owners: row -> rank  current: row -> bool        # of this rank's copy of the table
                  fresh: rank x owned row -> bool  changed: owned row -> bool # of the copies of others

    fetch = ids, to the owners that have them ─▶ from each owner a bit an id, and the rows that the asker lacks

An owner remembers the ranks with current copies of its rows, so that an unchanged row is not sent again.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from zenc.errors import Diagnostic, SynchronisationError, TensorError
from zenc.runtime.announced.announcement import row_ids
from zenc.tables.owned_rows import OwnedRows


@dataclass(slots=True)
class FetchedRows:
    """``owners`` [rows] and ``current`` [rows] of the whole table; ``fresh`` [ranks, m], ``changed`` [m] of owned rows.

    ``changed`` counts since all ranks had all rows.
    """

    table: OwnedRows
    owners: torch.Tensor
    current: torch.Tensor
    fresh: torch.Tensor
    changed: torch.Tensor

    @staticmethod
    def begin(table: OwnedRows, owners: torch.Tensor, size: int) -> FetchedRows:
        """Return the state in which all ``size`` ranks have all rows as they are."""
        nothing = torch.zeros_like(table.ids, dtype=torch.bool)
        everything = torch.ones_like(owners, dtype=torch.bool), ~nothing.repeat(size, 1)
        return FetchedRows(table, owners, *everything, nothing)

    def updated(self, rows: torch.Tensor) -> None:
        """Take the updated ``rows``, sparse and owned, into the table; no other copy of them is current now."""
        at = torch.searchsorted(self.table.ids, rows.indices()[0])
        self.table.write(rows)
        self.fresh[:, at], self.changed[at] = False, True
        self.current.zero_()
        self.current[self.table.ids] = True

    def changes(self, all_rows: bool) -> torch.Tensor:
        """Return the owned rows, sparse, that changed since all ranks had all of them, or ``all_rows`` owned."""
        ids = self.table.ids if all_rows else self.table.ids[self.changed]
        return self.table.rows_at(ids)

    def all_came(self) -> None:
        """Note that all ranks have all rows as they are."""
        self.fresh.fill_(True)
        self.changed.zero_()
        self.current.fill_(True)

    def ensure_current(self, gradient: torch.Tensor) -> None:
        """Raise TensorError (``not-fetched``) where ``gradient``, sparse, has rows that may be old ones here."""
        touched = gradient._indices()[0]
        if (missing := int((~self.current[touched]).sum())) > 0:
            message = f"{missing:,} of {len(touched):,} entries of a gradient are of rows that this rank did not fetch"
            help = "fetch(ids) before the forward pass, with all ids that it looks up"
            raise TensorError(Diagnostic("not-fetched", message, help=help))

    def asked(self, ids: torch.Tensor) -> list[torch.Tensor]:
        """Return, by rank, the row numbers among ``ids``, of any shape, that it owns and this rank may lack, ascending.

        Raises TensorError (``unit-out-of-range``).
        """
        height = len(self.current)
        ids = row_ids(ids, height)
        if ids.numel() and not 0 <= int(ids.min()) <= int(ids.max()) < height:
            message = f"rows {int(ids.min()):,} to {int(ids.max()):,} are asked for, of a table of {height:,}"
            raise TensorError(Diagnostic("unit-out-of-range", message))
        wanted = torch.zeros_like(self.current)
        wanted[ids.to(wanted.device)] = True
        rows = (wanted & ~self.current).nonzero()[:, 0]
        owners, size = self.owners[rows].long(), len(self.fresh)
        ends = torch.bincount(owners, minlength=size).cumsum(0).tolist()
        return list(torch.tensor_split(rows[torch.argsort(owners, stable=True)], ends[:-1]))

    def answer(self, rank: int, ids: torch.Tensor) -> torch.Tensor:
        """Return the bytes for ``rank``, which asks for the owned rows ``ids``: a bit for each, and missing rows."""
        at = torch.searchsorted(self.table.ids, ids)
        lacks = ~self.fresh[rank, at]
        self.fresh[rank, at] = True
        rows = self.table.parameter.detach()[ids[lacks]]
        return torch.cat([_packed(lacks), rows.reshape(-1).view(torch.uint8)])

    def take(self, ids: torch.Tensor, answer: torch.Tensor) -> None:
        """Put an owner's answer for ``ids``, on the CPU, into the table.

        Raises SynchronisationError (``corrupt-message``).
        """
        parameter = self.table.parameter.detach()
        answer = answer.to(parameter.device)
        bits = -(-len(ids) // 8)
        came = ids[_unpacked(answer[:bits], len(ids))]
        if len(answer) != bits + len(came) * parameter[:1].nbytes:
            message = f"an owner of {len(ids):,} rows that were asked for answers {len(answer):,} bytes"
            raise SynchronisationError(Diagnostic("corrupt-message", message))
        rows = answer[bits:].clone().view(parameter.dtype)
        parameter[came] = rows.view(len(came), *parameter.shape[1:])
        self.current[ids] = True


def _packed(bits: torch.Tensor) -> torch.Tensor:
    """Return [n] bool as [ceil(n / 8)] uint8."""
    padded = torch.nn.functional.pad(bits.to(torch.uint8), (0, -len(bits) % 8)).view(-1, 8)
    return (padded << _places(bits)).sum(1, dtype=torch.uint8)


def _unpacked(packed: torch.Tensor, count: int) -> torch.Tensor:
    return (packed[:, None] >> _places(packed) & 1).view(-1)[:count].bool()


def _places(of: torch.Tensor) -> torch.Tensor:
    return torch.arange(8, dtype=torch.uint8, device=of.device)
