"""The decision tree of Espresso (EuroSys 2023, section 4.2): every way to synchronise one tensor, as lists of tasks.

A way compresses or not, on one of the devices; sums among all ranks at once or first inside of each machine, by one
collective or by two; and compresses for any of them. Each path from the root to a leaf is an option. The paper prunes
by three rules: a task is followed by one that its outcome fits; collectives of the first and second step stand there
only; two steps pair, a scatter with a gather and a root with a broadcast. Inside machines there are always two steps.

    option = flat | hierarchical                                     # a, b: devices that compress, that decompress
    T1 = end of the inside, plain:          pull | compress pull decompress                           1 + ab
    T2 = end of the inside, compressed:     pull decompress | decompress T1                           b + b T1
    T5 = second step across, plain:         pull T1 | compress pull T2                                T1 + a T2
    T3 = across, plain:                     all-reduce T1 | push T5, by 2 collectives                 T1 + 2 T5
    T4 = across, compressed:                all-gather T2 | push (pull T2 | decompress T5), by 2      T2 + 2 (T2 + b T5)
    flat = all-reduce | push T1, by 2 | compress (all-gather decompress | push T2, by 2)
    hierarchical = push (T3 | compress T4), by 2 | compress push (T4 | decompress (T3 | compress T4)), by 2

The list of valid connections is not in the paper; this one has as many options as the paper says, 4,341 with two
devices (tests/benchmarks/test_decision_tree.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum


class Action(Enum):
    """The kinds of tasks: on a device, or collectives of one step, of a first or of a second one."""

    COMPRESS = "compress"
    DECOMPRESS = "decompress"
    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    SCATTER = "scatter"
    """A collective of the first step: reduce-scatter, or all-to-all of compressed pieces."""
    COLLECT = "collect"
    """A collective of the second step after a scatter: all-gather."""
    ROOT = "root"
    """A collective of the first step: reduce, or gather of compressed pieces."""
    BROADCAST = "broadcast"
    """A collective of the second step after a root."""


class Among(Enum):
    """The ranks that a collective joins: all; those of a machine, to the sum or back; one of each machine."""

    FLAT = 0
    INSIDE_PUSH = 1
    ACROSS = 2
    INSIDE_PULL = 3


class Cut(Enum):
    """The part of a tensor that first steps have left on a rank: all, its share, or all on the root alone."""

    WHOLE = 0
    SHARE = 1
    ROOT = 2


@dataclass(frozen=True, slots=True)
class Held:
    """The state of a rank before a task: its share of the tensor, and the unsummed pieces of ranks.

    ``inside`` and ``across``: the cuts among the ranks of a machine (or all, of a flat option) and among machines.
    ``many_inside`` and ``many_across``: compressed pieces of each of these are held, beside each other.
    """

    inside: Cut = Cut.WHOLE
    across: Cut = Cut.WHOLE
    compressed: bool = False
    many_inside: bool = False
    many_across: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """An ``action`` on the ``held`` state before it: a collective at a ``level``, or on a ``device``."""

    action: Action
    held: Held
    level: Among | None = None
    device: str = ""

    def __str__(self) -> str:
        where = self.device if self.level is None else self.level.name.lower().replace("_", " ")
        return f"{self.action.value} {where}"


Option = tuple[Task, ...]
"""A way to synchronise a tensor: tasks, one after another."""

_PAIRS: tuple[tuple[Action, Cut], ...] = ((Action.SCATTER, Cut.SHARE), (Action.ROOT, Cut.ROOT))


@dataclass(frozen=True, slots=True)
class Tree:
    """The options of a tree where ``encoders`` may compress, and ``decoders`` decompress: devices, gpu and cpu."""

    encoders: tuple[str, ...] = ("gpu", "cpu")
    decoders: tuple[str, ...] = ("gpu", "cpu")

    def options(self) -> Iterator[Option]:
        """Yield all options, the plain all-reduce first."""
        yield from self._flat()
        yield from self._hierarchical()

    def _flat(self) -> Iterator[Option]:
        start = Held()
        yield (Task(Action.ALL_REDUCE, start, Among.FLAT),)
        for push, held in _pushed(start, Among.FLAT):
            yield from _then((push,), self._second_inside(held, Among.FLAT))
        for encode, held in self._encoded(start):
            gather = Task(Action.ALL_GATHER, held, Among.FLAT)
            for decode, _ in self._decoded(replace(held, many_inside=True)):
                yield (encode, gather, decode)
            for push, pushed in _pushed(held, Among.FLAT):
                yield from _then((encode, push), self._second_inside_compressed(pushed, Among.FLAT))

    def _hierarchical(self) -> Iterator[Option]:
        start = Held()
        for push, held in _pushed(start, Among.INSIDE_PUSH):
            yield from _then((push,), self._across_any(held))
        for encode, held in self._encoded(start):
            for push, pushed in _pushed(held, Among.INSIDE_PUSH):
                yield from _then((encode, push), self._across_compressed(pushed))
                for decode, plain in self._decoded(pushed):
                    yield from _then((encode, push, decode), self._across_any(plain))

    def _across_any(self, held: Held) -> Iterator[Option]:
        yield from self._across(held)
        for encode, coded in self._encoded(held):
            yield from _then((encode,), self._across_compressed(coded))

    def _across(self, held: Held) -> Iterator[Option]:
        """Yield T3, of the module's grammar."""
        reduced = Task(Action.ALL_REDUCE, held, Among.ACROSS)
        yield from _then((reduced,), self._second_inside(held, Among.INSIDE_PULL))
        for push, pushed in _pushed(held, Among.ACROSS):
            yield from _then((push,), self._second_across(pushed))

    def _across_compressed(self, held: Held) -> Iterator[Option]:
        """Yield T4, of the module's grammar."""
        gathered = Task(Action.ALL_GATHER, held, Among.ACROSS)
        after = replace(held, many_across=True)
        yield from _then((gathered,), self._second_inside_compressed(after, Among.INSIDE_PULL))
        for push, pushed in _pushed(held, Among.ACROSS):
            for pull, pulled in _pulled(pushed, Among.ACROSS):
                yield from _then((push, pull), self._second_inside_compressed(pulled, Among.INSIDE_PULL))
            for decode, plain in self._decoded(pushed):
                yield from _then((push, decode), self._second_across(plain))

    def _second_across(self, held: Held) -> Iterator[Option]:
        """Yield T5, of the module's grammar."""
        for pull, pulled in _pulled(held, Among.ACROSS):
            yield from _then((pull,), self._second_inside(pulled, Among.INSIDE_PULL))
        for encode, coded in self._encoded(held):
            for pull, pulled in _pulled(coded, Among.ACROSS):
                yield from _then((encode, pull), self._second_inside_compressed(pulled, Among.INSIDE_PULL))

    def _second_inside(self, held: Held, level: Among) -> Iterator[Option]:
        """Yield T1, of the module's grammar."""
        for pull, _ in _pulled(held, level):
            yield (pull,)
        for encode, coded in self._encoded(held):
            for pull, pulled in _pulled(coded, level):
                for decode, _ in self._decoded(pulled):
                    yield (encode, pull, decode)

    def _second_inside_compressed(self, held: Held, level: Among) -> Iterator[Option]:
        """Yield T2, of the module's grammar."""
        for pull, pulled in _pulled(held, level):
            for decode, _ in self._decoded(pulled):
                yield (pull, decode)
        for decode, plain in self._decoded(held):
            yield from _then((decode,), self._second_inside(plain, level))

    def _encoded(self, held: Held) -> Iterator[tuple[Task, Held]]:
        for device in self.encoders:
            yield Task(Action.COMPRESS, held, device=device), replace(held, compressed=True)

    def _decoded(self, held: Held) -> Iterator[tuple[Task, Held]]:
        after = replace(held, compressed=False, many_inside=False, many_across=False)
        for device in self.decoders:
            yield Task(Action.DECOMPRESS, held, device=device), after


def _then(first: Option, rests: Iterator[Option]) -> Iterator[Option]:
    return (first + rest for rest in rests)


def _pushed(held: Held, level: Among) -> Iterator[tuple[Task, Held]]:
    """Yield the two first steps, and the states after them: pieces of all participants, where they are compressed."""
    for action, cut in _PAIRS:
        if level is Among.ACROSS:
            after = replace(held, across=cut, many_across=held.compressed)
        else:
            after = replace(held, inside=cut, many_inside=held.compressed)
        yield Task(action, held, level), after


def _pulled(held: Held, level: Among) -> Iterator[tuple[Task, Held]]:
    """Yield the one second step that fits the first."""
    cut = held.across if level is Among.ACROSS else held.inside
    action = Action.COLLECT if cut is Cut.SHARE else Action.BROADCAST
    whole = replace(held, across=Cut.WHOLE) if level is Among.ACROSS else replace(held, inside=Cut.WHOLE)
    yield Task(action, held, level), whole
