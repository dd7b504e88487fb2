"""Files of plans: what the readers of all formats share. Whatever the bytes, the outcome is a plan or a PlanError."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from zenc.common.untrusted import parse_json
from zenc.errors import Diagnostic, PlanError, Source, Span
from zenc.referee.model import COLLECTIVES, Block, BlockStep, ChunkMove, Goal
from zenc.topology.importers.xml import Element, Lines

MOST_GPUS = 1024
MOST_STEPS = 200_000
MOST_MOVES = 1 << 19
"""Most chunks that all steps touch, and that all buffers have."""


class PlanBuilder:
    """Collects blocks and steps of a plan, and the numbers by which steps wait for others."""

    def __init__(self, source: Source) -> None:
        self.source, self._lines = source, Lines(source)
        self.blocks: list[Block] = []
        self.steps: list[BlockStep] = []
        self.touched = 0

    def _fail(self, id: str, message: str, line: int | None = None, help: str | None = None) -> NoReturn:
        """Raise PlanError about the file, at ``line`` where that is known."""
        raise PlanError(Diagnostic(id, message, self.place(line or 1), help=help))

    def place(self, line: int | None) -> Span | None:
        """Return the place of a line in the file, where it is known."""
        return None if line is None else self._lines.span(line)

    def _malformed(self, message: str, line: int | None = None) -> NoReturn:
        self._fail("malformed-plan", message, line)

    def json(self, data: bytes) -> dict[str, Any]:
        """Return the object in a JSON file."""
        try:
            found = parse_json(data)
        except ValueError as error:
            self._malformed(str(error))
        return dict(self.of(found, dict, "the file"))

    def reserve(self, chunks: int, line: int | None = None) -> int:
        """Return ``chunks``, which a step is about to touch; raises PlanError where all touch too many."""
        self.touched += chunks
        if self.touched > MOST_MOVES:
            self._fail("plan-too-large", f"its steps touch more than {MOST_MOVES:,} chunks", line)
        return chunks

    def add(self, step: BlockStep) -> int:
        """Add ``step`` to the last block, and return its number; raises PlanError where there are too many."""
        if len(self.steps) >= MOST_STEPS:
            self._fail("plan-too-large", f"it has more than {MOST_STEPS:,} steps", step.line)
        self.steps.append(step)
        return len(self.steps) - 1

    def close(self, gpu: int, first: int) -> None:
        """End a block of ``gpu`` that began with the step ``first``."""
        self.blocks.append(Block(gpu, first, len(self.steps)))

    def whole(self, value: object, what: str, least: int = 0, most: int = MOST_MOVES, line: int | None = None) -> int:
        """Return ``value`` as a whole number from ``least`` to ``most``; a text of digits is one."""
        text = value.strip() if isinstance(value, str) else value
        if isinstance(text, str) and re.fullmatch("-?[0-9]{1,15}", text):
            text = int(text)
        if isinstance(text, bool) or not isinstance(text, int):
            said = "missing" if value is None else f"{str(value)[:40]!r}, and no whole number"
            self._malformed(f"{what} is {said}", line)
        if not least <= text <= most:
            self._malformed(f"{what} is {text}, which is not {least:,} to {most:,}", line)
        return text

    def number(
        self, element: Element, name: str, least: int = 0, most: int = MOST_MOVES, default: int | None = None
    ) -> int:
        """Return the attribute ``name`` of an XML element as ``whole`` does."""
        if name not in element.attributes and default is not None:
            return default
        return self.whole(element.attributes.get(name), f"'{name}' of <{element.tag}>", least, most, element.line)

    def of(self, data: object, kind: type, what: str) -> Any:
        """Return ``data``, which must be of ``kind``: a part of a JSON file named ``what``."""
        if not isinstance(data, kind):
            names: Mapping[type, str] = {dict: "an object", list: "a list", str: "a text"}
            found = "missing" if data is None else f"{str(data)[:40]!r}, and not {names[kind]}"
            self._malformed(f"{what} is {found}")
        return data

    def match(self, pattern: re.Pattern[str], text: object, what: str, form: str, line: int | None = None) -> list[str]:
        """Return the groups of ``pattern`` in the text named ``what``; raises PlanError for another ``form``."""
        found = pattern.fullmatch(text) if isinstance(text, str) else None
        if found is None:
            self._malformed(f"{what} is {str(text)[:60]!r}, and not '{form}'", line)
        return list(found.groups(""))

    def goal(self, collective: object, size: int, whole: int, line: int | None = None) -> Goal:
        """Return what the plan is to do; raises PlanError (``unsupported-plan``) for another collective."""
        name = str(collective).lower().replace("_", "").replace("-", "")
        if name not in COLLECTIVES:
            known = ", ".join(COLLECTIVES)
            said = f"the collective '{str(collective)[:40]}' is not judged; one of {known}"
            self._fail("unsupported-plan", said, line)
        if whole * size > MOST_MOVES:
            self._fail("plan-too-large", f"its buffers have {whole * size:,} chunks, more than {MOST_MOVES:,}", line)
        if name not in ("allreduce", "broadcast") and whole % size:
            self._malformed(f"{whole} chunks can't be shared among {size} gpus", line)
        return Goal(name, size, whole)

    def ensure_gpus(self, found: Iterable[int], size: int) -> None:
        """Raise PlanError unless each GPU below ``size`` is there, once."""
        ids = list(found)
        missing = sorted(set(range(size)) - set(ids))
        twice = sorted(gpu for gpu in set(ids) if ids.count(gpu) > 1)
        if missing or twice:
            self._malformed(f"gpu {(missing or twice)[0]} is {'missing' if missing else 'there twice'}")


def copies(
    into: tuple[int, str, int] | None, of: tuple[tuple[int, str, int], ...], number: int, adds: bool
) -> tuple[ChunkMove, ...]:
    """Return the moves of ``number`` chunks, which lie behind each other in all buffers."""
    return tuple(
        ChunkMove(
            () if into is None else ((into[0], into[1], into[2] + at),),
            tuple((gpu, buffer, offset + at) for gpu, buffer, offset in of),
            adds,
        )
        for at in range(number)
    )
