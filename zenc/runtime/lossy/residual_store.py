"""Residual store: the losses that the calls of each name have kept, and the number of calls.

    ResidualStore = Entry*                                      # by name
    Entry         = shape  step  FlatState  place               # of its piece in the state
    FlatState     = NamedPiece+  now: KeptVectors  next: KeptVectors          # of a call: its pieces, one after another
    KeptVectors   = residual? velocity? shift? sent? history? factors?   # float32 [elements]; of a piece, its factors
    NamedPiece         = name  shape

A call sums one tensor: one piece, or several that lie one after another in it, as the parameters in a bucket of DDP do.
Losses are kept by name, in a flat vector of all pieces of a call. Where a call has other pieces than before, the vector
is laid out anew from those of the names, so that buckets may be rebuilt without loss.

A call reads ``now`` and writes ``next``; ``commit`` exchanges them once the sum is known to be finite on all ranks, and
until then nothing has changed. Afterwards ``next`` is what was before that call, so that ``take_back`` can undo it.

Where a scheme is chosen anew for a tensor, the next call may be one that sums everything. What was left out so far is
then added to the gradient (``fold``), and nothing of it is kept; but for the loss where 16 bits can't hold the sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple, TypeAlias

import torch

from zenc.errors import Diagnostic, TensorError
from zenc.wire.cuts import Ends

Shape: TypeAlias = tuple[int, ...]
TensorName: TypeAlias = "str | Sequence[tuple[str, int | Sequence[int]]]"
"""The name of a tensor; or those of its pieces, each with the number of its elements, or its shape."""


@dataclass(frozen=True, slots=True)
class NamedPiece:
    """A named part of a summed tensor, of ``shape``."""

    name: str
    shape: Shape

    @property
    def numel(self) -> int:
        """The number of its elements."""
        return math.prod(self.shape)


Pieces: TypeAlias = tuple[NamedPiece, ...]
Threshold: TypeAlias = tuple[int, int]
"""A key of magnitudes, and the step in which it was found."""


def pieces_of(name: TensorName, tensor: torch.Tensor) -> Pieces:
    """Return the pieces of ``tensor``, of any shape if it has one name. Raises TensorError (``wrong-pieces``)."""
    if isinstance(name, str):
        return (NamedPiece(name, tuple(tensor.shape)),)
    if not name:
        raise TensorError(Diagnostic("wrong-pieces", "a tensor of several pieces has one at least"))
    try:
        pieces = tuple(NamedPiece(each, (of,) if isinstance(of, int) else tuple(of)) for each, of in name)
    except (TypeError, ValueError) as error:
        message = f"pieces are pairs of a name and its elements or shape, not {name!r}"
        raise TensorError(Diagnostic("wrong-pieces", message)) from error
    if any(extent < 0 for piece in pieces for extent in piece.shape):
        raise TensorError(Diagnostic("wrong-pieces", "a piece has as many elements as it says, and not fewer than 0"))
    if sum(piece.numel for piece in pieces) != tensor.numel():
        message = f"the named pieces have {sum(p.numel for p in pieces)} elements, and the tensor {tensor.numel()}"
        raise TensorError(Diagnostic("wrong-pieces", message))
    if len({piece.name for piece in pieces}) < len(pieces):
        raise TensorError(Diagnostic("wrong-pieces", "two pieces of one tensor have one name"))
    return pieces


def text_of(name: TensorName) -> str:
    """Return the name, or those of all pieces, for people."""
    return name if isinstance(name, str) else ", ".join(each for each, _ in name)


@dataclass(slots=True)
class KeptVectors:
    """Vectors that are kept from call to call, float32 [elements]; None is zeros.

    ``residual``: the losses so far. ``velocity``: DGC's momentum. ``sent``: the sum of all that the calls of all ranks
    have sent, the same on them; ``shift``: what this rank's have, times -1, so that both add up to 0 over the ranks.
    ``history``: the running mean of the magnitudes of results, by which probable units are found. ``factors``: of each
    piece both factors [any number of values] of its last sums as a matrix of low rank, the same on all ranks.
    """

    residual: torch.Tensor | None = None
    velocity: torch.Tensor | None = None
    shift: torch.Tensor | None = None
    sent: torch.Tensor | None = None
    history: torch.Tensor | None = None
    factors: tuple[torch.Tensor | None, ...] = ()

    @property
    def added(self) -> torch.Tensor | None:
        """The vector [elements] that is added to the next gradient."""
        return self.residual if self.shift is None else self.shift

    @property
    def factor(self) -> torch.Tensor | None:
        """The factors [any number of values] of the first piece."""
        return self.factors[0] if self.factors else None

    @factor.setter
    def factor(self, values: torch.Tensor) -> None:
        self.factors = (values,)

    def part(self, first: int, count: int, place: int) -> KeptVectors:
        """Return views of ``count`` elements from ``first`` on, and the factors of the piece at ``place``."""
        cut = [None if each is None else each[first : first + count] for each in self.all]
        residual, velocity, shift, sent, history = cut
        return KeptVectors(residual, velocity, shift, sent, history, self.factors[place : place + 1])

    @property
    def all(self) -> tuple[torch.Tensor | None, ...]:
        """The vectors in the order of the fields; each [elements]."""
        return tuple([getattr(self, name) for name in VECTORS])


VECTORS = tuple(KeptVectors.__slots__[:-1])


@dataclass(slots=True)
class FlatState:
    """The state of the calls of some ``pieces``; ``threshold`` is the last magnitude found, with its step.

    A call writes into room for every kept vector.
    """

    pieces: Pieces
    device: torch.device
    now: KeptVectors = field(default_factory=KeptVectors)
    next: KeptVectors = field(default_factory=KeptVectors)
    threshold: Threshold | None = None
    ends: Ends = ()
    """The ends of parts in the next call, by the encoded sizes of this one; empty where it is to be cut evenly."""
    changed: bool = False
    """True where ``next`` has the values before the last call."""
    open: bool = False
    """True where a call has begun to write, and has not ended, so that the values before the last one are gone."""

    @property
    def elements(self) -> int:
        """The number of elements of all pieces."""
        return sum(piece.numel for piece in self.pieces)

    def room(self, vector: str) -> torch.Tensor:
        """Return room [elements], with undefined content, for the next values of ``vector``, a field of KeptVectors."""
        room: torch.Tensor | None = getattr(self.next, vector)
        if room is None:
            room = torch.empty(self.elements, dtype=torch.float32, device=self.device)
            setattr(self.next, vector, room)
        self.changed, self.open = False, True
        return room

    def commit(self) -> None:
        """Keep the values that the call has written."""
        self.now, self.next, self.changed = self.next, self.now, True

    def take_back(self) -> None:
        """Keep the values before the last call, if that changed them."""
        if self.changed:
            self.now, self.next, self.changed = self.next, KeptVectors(), False

    @property
    def firsts(self) -> list[int]:
        """The place of each piece."""
        return [0, *accumulate(piece.numel for piece in self.pieces)][:-1]


@dataclass(slots=True)
class Entry:
    """The state of a name: ``step`` calls so far, and ``state``, whose piece at ``place`` it is."""

    shape: Shape
    step: int
    state: FlatState
    place: int

    @property
    def vectors(self) -> KeptVectors:
        """The views of the entry's own values in the present state."""
        return self.state.now.part(self.state.firsts[self.place], math.prod(self.shape), self.place)


class CallCount(NamedTuple):
    """The number of calls so far, ``step``, of a tensor of ``shape``; ``can_undo``: the last of them can be undone."""

    shape: Shape
    step: int
    can_undo: bool


class ResidualStore:
    """The states of all names of one collective on one rank."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.closed = False
        """True once a state was loaded: names that it does not have are errors from then on."""

    def ensure_fit(self, pieces: Pieces) -> None:
        """Raise TensorError (``needs-name``, ``other-model``) for pieces whose state can't be kept here."""
        for piece in pieces:
            if not piece.name:
                message = "this scheme keeps what it leaves out by the name of the tensor, and this one has none"
                raise TensorError(Diagnostic("needs-name", message, help='pass name="...", the same on all ranks'))
            known = self.entries.get(piece.name)
            if known is None and self.closed:
                message = f"the state that was loaded has no tensor '{piece.name}'"
                help = "load the state of this model, or none"
                raise TensorError(Diagnostic("other-model", message, notes=_names(self.entries), help=help))
            if known is not None and known.shape != piece.shape:
                message = f"'{piece.name}' has the shape {piece.shape}, and had {known.shape} before"
                raise TensorError(Diagnostic("other-model", message, help="give each tensor a name of its own"))

    def state_of(self, pieces: Pieces, device: torch.device) -> FlatState:
        """Return the state of a call of ``pieces`` on ``device``, laid out anew if they were in other calls before."""
        first = self.entries.get(pieces[0].name)
        if first is not None and first.state.pieces == pieces and first.state.device == device:
            return first.state
        state = self._gathered(pieces, device)
        for place, piece in enumerate(pieces):
            known = self.entries.get(piece.name)
            self.entries[piece.name] = Entry(piece.shape, known.step if known else 0, state, place)
        return state

    def _gathered(self, pieces: Pieces, device: torch.device) -> FlatState:
        state, first = FlatState(pieces, device), self.entries.get(pieces[0].name)
        if first is not None and first.place == 0:
            state.threshold, state.ends = first.state.threshold, first.state.ends
        for piece, at in zip(pieces, state.firsts, strict=True):
            known = self.entries.get(piece.name)
            for name in VECTORS if known else ():
                assert known is not None
                values = getattr(known.vectors, name)
                if values is None:
                    continue
                if getattr(state.now, name) is None:
                    setattr(state.now, name, torch.zeros(state.elements, dtype=torch.float32, device=device))
                getattr(state.now, name)[at : at + piece.numel] = values
        known_by_place = [self.entries.get(piece.name) for piece in pieces]
        state.now.factors = tuple([known.vectors.factor if known else None for known in known_by_place])
        return state

    def steps(self, pieces: Pieces) -> tuple[int, ...]:
        """Return the number of calls of each of ``pieces`` so far, after ``state_of``."""
        return tuple([self.entries[piece.name].step for piece in pieces])

    def count(self, pieces: Pieces) -> None:
        """Count a call of ``pieces`` that has ended."""
        for piece in pieces:
            entry = self.entries[piece.name]
            entry.step, entry.state.open = entry.step + 1, False

    def counts(self) -> dict[str, CallCount]:
        """Return the number of calls of each name."""
        return {name: CallCount(each.shape, each.step, not each.state.open) for name, each in self.entries.items()}

    def states(self, names: Iterable[str] | None = None) -> Iterator[FlatState]:
        """Yield each state that ``names`` have a part in, once; of all names without them."""
        chosen = self.entries.values() if names is None else [self.entries[name] for name in names]
        yield from {id(entry.state): entry.state for entry in chosen}.values()

    def take_back(self, names: Iterable[str]) -> None:
        """Undo the last call of ``names``, which stays counted."""
        for state in self.states(names):
            state.take_back()

    def undo(self, names: Sequence[str]) -> None:
        """Go back to before the last call of ``names``; no name may be in a call that has begun and failed since."""
        self.take_back(names)
        for name in names:
            self.entries[name].step -= 1

    def scale(self, factor: float) -> None:
        """Multiply all that is kept by ``factor``, as where gradients have another scale from now on."""
        for state in self.states():
            for vectors in (state.now, state.next) if state.changed else (state.now,):
                for vector in vectors.all:
                    if vector is not None:
                        vector.mul_(factor)

    def restore(
        self, name: str, shape: Shape, step: int, vectors: KeptVectors, threshold: Threshold | None, ends: Ends = ()
    ) -> None:
        """Begin with ``vectors`` [elements] of ``name``, which become its own, after ``step`` calls."""
        state = FlatState((NamedPiece(name, shape),), torch.device("cpu"), vectors, threshold=threshold, ends=ends)
        self.entries[name] = Entry(shape, step, state, 0)


def _names(entries: Iterable[str]) -> tuple[str, ...]:
    names = sorted(entries)
    return (f"it has {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}",)


def no_residual(scheme: str, name: str) -> TensorError:
    """Return the error of a request for a residual that is not kept."""
    message = f"{scheme} keeps nothing under the name '{name}'"
    return TensorError(Diagnostic("no-residual", message, help="residuals are kept by schemes with 'feedback'"))


@dataclass(frozen=True, slots=True)
class FoldedCall:
    """A call of a tensor to which the residual in ``state`` was added; ``rest`` [elements]: what could not be."""

    state: FlatState
    rest: torch.Tensor

    def end(self, result: torch.Tensor) -> None:
        """Keep the rest alone, if ``result``, of any shape, is finite; else all that was kept before."""
        if not bool(torch.isfinite(result).all()):
            return
        for vector in VECTORS:
            kept = self.rest if vector == "residual" else getattr(self.state.now, vector)
            if kept is not None:
                self.state.room(vector).copy_(kept)
        self.state.next.factors = self.state.now.factors
        self.state.commit()
        if not bool(self.rest.any()):
            self.state.now.residual = None


def fold(store: ResidualStore, pieces: Pieces, tensor: torch.Tensor) -> FoldedCall | None:
    """Add what ``store`` has kept of ``pieces`` to the dense ``tensor`` of any shape; None where there is nothing."""
    if not any(piece.name in store.entries for piece in pieces):
        return None
    state = store.state_of(pieces, tensor.device)
    if state.now.residual is None:
        return None
    whole = tensor.detach().reshape(-1).float() + state.now.residual
    tensor.detach().copy_(whole.view(tensor.shape))
    return FoldedCall(state, whole - tensor.detach().reshape(-1).float())
