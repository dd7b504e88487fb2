"""Announcements of lookups: the rows that a table's gradient will have, told to all ranks before there is a gradient.

    Announcer    = AnnouncedTable*                    # tables whose scheme is balanced by holders
    before a forward pass     a hook on each module that looks up such a table, which notes ids
    after it the hooks go; if its backward pass synchronises, each table announces the noted ids
    a gradient is averaged by the announcement; the noted ids are forgotten

Ranks announce the same tables in the same order, a rank without lookups no rows. The noted ids are a forecast: where it
is wrong the call is made as if nothing was announced. A table whose forecast is wrong time and again announces no more,
on all ranks from the same step on, since all know how each call ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from zenc.errors import Diagnostic, SchemeError
from zenc.runtime.announced.announcement import Announcement, announces, announcing
from zenc.runtime.call.collective import Collective
from zenc.runtime.call.layout import as_tensor
from zenc.runtime.call.stats import CallStats
from zenc.torch.parameters import ForwardWatch
from zenc.torch.strategy.active_rule import ActiveRule

log = logging.getLogger("zenc")
MOST_MISSES = 3
"""Consecutive wrong announcements after which a table announces no more."""


class AnnouncedTable:
    """A table whose gradient goes through ``collective``; ``modules`` look it up."""

    def __init__(self, name: str, table: torch.Tensor, modules: Sequence[nn.Module], collective: Collective) -> None:
        self.name, self.table, self.modules, self.collective = name, table, tuple(modules), collective
        self.noted: list[torch.Tensor] = []
        """Ids of lookups whose gradients are not averaged yet."""
        self.silent: list[torch.Tensor] = []
        """Ids of lookups made without gradients, in a pass with gradients: of targets, or to be made again with them.
        """
        self.counts_silent = False
        """True where silent lookups have gradients in the end, as in reentrant checkpoints; learned from a wrong
        announcement."""
        self.announcement: Announcement | None = None
        """The announcement for the next average."""
        self.by_hand = False
        """True where the caller has announced."""
        self.misses, self.gives_up = 0, False
        """The consecutive wrong announcements; and True once they were so numerous that lookups are announced no more.
        """
        self._used, self._had_silent = False, False
        """True where the last average had an announcement, and where there were silent lookups."""

    def note(self, module: nn.Module, ids: torch.Tensor) -> None:
        """Note the ``ids``, of any shape, that ``module`` looks up, unless they get no gradient."""
        flat = ids.detach().reshape(-1)
        padding = getattr(module, "padding_idx", None)
        kept = self.noted if torch.is_grad_enabled() else self.silent
        kept.append(flat.clone() if padding is None else flat[flat != padding])

    def announce(self, ids: torch.Tensor | None = None) -> None:
        """Announce ``ids`` of any shape, or the noted ones."""
        if ids is None:
            noted = [*self.noted, *self.silent] if self.counts_silent else self.noted
            ids = torch.cat(noted) if noted else torch.empty(0, dtype=torch.int64, device="cpu")
        self.announcement = self.collective.announce(ids.to(self.table.device), self.table.shape, self.name)

    def taken(self) -> Announcement | None:
        """Return the announcement, if there is one, and begin the next one with nothing."""
        announcement, self.announcement = self.announcement, None
        self._used, self._had_silent = announcement is not None, bool(self.silent)
        self.noted, self.silent, self.by_hand = [], [], False
        return announcement

    def ended(self, counted: CallStats) -> None:
        """Learn from the statistics ``counted`` of the last average whether the announcement was right."""
        if not self._used:
            return
        self.misses = self.misses + 1 if counted.made_again else 0
        if counted.made_again and self._had_silent:
            self.counts_silent = not self.counts_silent
        if self.misses < MOST_MISSES or self.gives_up:
            return
        self.gives_up = True
        if self.collective.rank == 0:
            message = "zenc.attach: %s had other rows than its lookups %d times in a row, and announces no more"
            log.warning(message, self.name, MOST_MISSES)


class Announcer(ForwardWatch):
    """The announcer of the ``tables`` of a model; with ``ddp_model`` it announces the lookups of forward passes.

    Copied or pickled with its model it announces nothing.
    """

    def __init__(self, tables: Iterable[AnnouncedTable] = (), ddp_model: DistributedDataParallel | None = None) -> None:
        self.tables = {table.name: table for table in tables}
        super().__init__(ddp_model)

    def remove(self) -> None:
        """Remove all hooks from the model, and forget announcements."""
        super().remove()
        self.tables = {}

    def announce(self, name: str, ids: torch.Tensor) -> None:
        """Announce ``ids``, of any shape, of the table ``name``, in place of the lookups of the next forward pass.

        Raises SchemeError (``unknown-parameter``) where the scheme of the parameter has nothing to announce.
        """
        table = self.tables.get(name)
        if table is None:
            message = f"'{name}' is no table whose scheme is balanced by holders"
            known = ", ".join(self.tables) or "there is none"
            raise SchemeError(Diagnostic("unknown-parameter", message, help=f"these are: {known}"))
        table.announce(as_tensor(ids))
        table.by_hand = True

    def taken(self, name: str) -> Announcement | None:
        """Return the announcement for the gradient of the parameter ``name``, averaged now; None without one."""
        return self.tables[name].taken() if name in self.tables else None

    def ended(self, name: str, counted: CallStats | None) -> None:
        """Learn from the statistics ``counted`` of the average of ``name``."""
        if counted is not None and name in self.tables:
            self.tables[name].ended(counted)

    def _begin(self, ddp_model: nn.Module, _: Any) -> None:
        if torch.is_grad_enabled() and ddp_model.training:
            for table in self.tables.values():
                self._within += [each.register_forward_pre_hook(self._seen, with_kwargs=True) for each in table.modules]

    def _seen(self, module: nn.Module, given: Any, named: Mapping[str, Any]) -> None:
        """Note the first integers that ``module`` is called with, for all of its tables."""
        if torch.compiler.is_compiling():
            return
        ids = next(filter(_is_ids, (*given, *named.values())), None)
        if ids is None:
            return
        for table in self.tables.values():
            if not table.gives_up and any(module is each for each in table.modules):
                table.note(module, ids)

    def _end(self, _: nn.Module, __: Any, output: Any) -> None:
        began, ddp_model = bool(self._within), self._ddp()
        self._remove_within()
        if began and output is not None and ddp_model is not None and ddp_model.require_backward_grad_sync:
            for table in self.tables.values():
                if not table.gives_up and not table.by_hand:
                    table.announce()


def _is_ids(given: object) -> TypeGuard[torch.Tensor]:
    return isinstance(given, torch.Tensor) and given.dtype in (torch.int64, torch.int32)


def announcer_of(
    rules: Iterable[ActiveRule],
    sparse: Mapping[str, Sequence[nn.Module]],
    parameters: Mapping[str, torch.Tensor],
    ddp_model: DistributedDataParallel,
    announce: str | None,
) -> Announcer:
    """Return the announcer of all tables of ``rules`` that can announce; of lookups if ``announce`` is "forward".

    ``sparse``: name -> modules; ``parameters``: name -> tensor of any shape. Raises SchemeError (``not-announced``)
    where there is no such table, and TensorError where one can't be announced.
    """
    if announce not in (None, "forward"):
        message = f'announce={announce!r}: lookups are announced after the "forward" pass, or not at all (None)'
        raise SchemeError(Diagnostic("not-announced", message))
    tables = []
    for rule in (rule for rule in rules if announces(rule.collective.artifact) and rule.host is None):
        of_rows = {name: _lookups(ddp_model.module, table) for name, table in rule.served.rows.items()}
        for name, modules in (*((name, sparse[name]) for name in rule.served.sparse), *of_rows.items()):
            if modules:
                tables.append(AnnouncedTable(name, parameters[name], modules, rule.collective))
    if announce and not tables:
        message = "no table goes through a scheme that is balanced by holders"
        help = "zenc.attach(ddp_model, 'holders', announce='forward'), for a model with nn.Embedding(sparse=True)"
        raise SchemeError(Diagnostic("not-announced", message, help=help))
    for table in tables if announce else ():
        announcing(table.collective, table.table.shape, table.table.device)
    return Announcer(sorted(tables, key=lambda table: table.name), ddp_model if announce else None)


def _lookups(model: nn.Module, table: torch.Tensor) -> list[nn.Module]:
    """Return the modules that look up ``table``, whose gradient is dense; an empty list where others use it too."""
    users = [each for each in model.modules() if any(own is table for own in each.parameters(recurse=False))]
    return users if all(isinstance(each, nn.Embedding | nn.EmbeddingBag) for each in users) else []
