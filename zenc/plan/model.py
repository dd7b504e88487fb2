"""What a plan is: a scheme made ready to run, as data that a reader can execute by hand.

    Plan = scheme doc parameters
           size?                                  # the number of ranks it is pinned to; None serves any number
           partition aggregation mapping unit     # as in zenc.scheme.model
           push: Phase, pull: Phase
    Phase = Block x Format                        # the moves, in the language of zenc.language.schedule

The meaning of a plan, which every target and every proof keeps to. The tensor is cut in ``parts`` (1 or ``size``).
At first every rank holds, of every part, its own contribution. Steps run one after another; the moves of a step
run together and see what was there before it.

push  A move copies what the sender holds of a part. What arrives is joined to what is held: under incremental
      aggregation merged at once, in the order of the ranks that held the pieces (the receiver's own among them);
      under one-shot aggregation kept apart, and merged in rank order where all are there when the push ends.
pull  A move copies a complete part, which takes the place of what the receiver held of it.

At the end every rank holds every part, complete.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from zenc.errors import Span
from zenc.language.schedule import Block
from zenc.scheme.model import Aggregation, Format, Mapping, Partition, Unit

PLAN_VERSION = 1


@dataclass(frozen=True, slots=True)
class Phase:
    block: Block
    format: Format
    span: Span | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Plan:
    scheme: str
    doc: str
    parameters: tuple[tuple[str, int | float], ...]
    size: int | None
    communication: str
    partition: Partition
    aggregation: Aggregation
    mapping: Mapping
    unit: Unit
    push: Phase
    pull: Phase

    @property
    def one_shot(self) -> bool:
        return self.aggregation is Aggregation.ONE_SHOT

    def parts(self, size: int) -> int:
        """The number of parts among ``size`` ranks."""
        return size if self.partition is Partition.PARALLELISM else 1

    def to_json(self) -> dict[str, object]:
        """The plan as JSON data; ``zenc.plan.serial`` reads it back."""
        from zenc.plan.serial import plan_to_json

        return plan_to_json(self)

    @property
    def digest(self) -> str:
        """64 hex digits that two plans share only if they mean the same; places and doc strings do not count."""
        from zenc.plan.serial import plan_to_json

        text = json.dumps(plan_to_json(self, meaning_only=True), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()
