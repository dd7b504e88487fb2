"""Profiles of a model while it trains: on some steps the ranks count the holders of units.

    call k of a parameter is sampled where k is a multiple of ``every``        # the same calls on all ranks
    1. each rank marks the units of the sample that it holds: a byte each      # before the call, which may change them
    2. the scheme's own call runs as always
    3. one small all-reduce sums the marks, in its turn after the call         # holders of each unit of the sample

So all ranks have the same counts. A sample costs a byte a unit, four above 255 ranks.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from zenc.common.arguments import names_wrong_types
from zenc.common.resources import write_text
from zenc.common.versioned import COUNTS
from zenc.errors import CostError, Diagnostic, TensorError, ZencError, first_line
from zenc.gradients.profile import Profile
from zenc.gradients.profile_fit import HolderCounts
from zenc.gradients.profile_io import dump_profiles
from zenc.runtime.call.call_queue import Job, Work
from zenc.runtime.call.layout import Layout, layout_of
from zenc.runtime.choice.sampling import SAMPLE, PresenceSampler, count_dtype
from zenc.runtime.group.host_collectives import allreduce_sum
from zenc.runtime.lossy.saved_state import ensure_held
from zenc.scheme.model import Unit

if TYPE_CHECKING:
    from zenc.runtime.group.communicator import Communicator

MOST_SAMPLED = 1 << 24


@dataclass(frozen=True, slots=True)
class Marks:
    """The sampled units that this rank ``held`` before a call, and whether they could not be found; [s + 1]."""

    name: str
    layout: Layout
    held: torch.Tensor


class Profiler:
    """A counter, for each parameter of an attached model, of the ranks that hold units: ``profiles()`` and ``save()``.

        profiler = zenc.Profiler(every=100)
        zenc.attach(ddp_model, "auto", profiler=profiler)

    Args:
        every: the first call of each parameter is sampled, and each ``every``-th after it. All ranks must say the same.
        sample: the number of units that are sampled; of smaller tables all are.

    Raises:
        CostError: ``bad-profile``, for impossible numbers.
    """

    @names_wrong_types
    def __init__(self, every: int = 100, sample: int = SAMPLE) -> None:
        if every < 1 or not 1 <= sample <= MOST_SAMPLED:
            message = f"a profiler samples every 1st call or fewer, and 1 to 2^24 units, not {every} and {sample}"
            raise CostError(Diagnostic("bad-profile", message))
        self.every, self.sample = every, sample
        self._calls: dict[str, int] = {}
        self._tallies: dict[str, HolderCounts] = {}
        self._pending: dict[str, Job[None]] = {}
        self._marker = PresenceSampler(sample)
        self._lock = threading.Lock()

    def __str__(self) -> str:
        return f"every {self.every}, of {self.sample} units"

    def __repr__(self) -> str:
        return f"<zenc.Profiler {self}: {len(self._tallies)} parameters so far>"

    def begin(self) -> None:
        """Begin to count the calls of each parameter anew, as all ranks of a group do together; profiles stay."""
        self._calls.clear()

    def samples(self, names: Iterable[str]) -> bool:
        """Return whether any of the next calls of ``names`` is sampled; without any they count as made."""
        calls = {name: self._calls.get(name, 0) for name in names}
        if any(count % self.every == 0 for count in calls.values()):
            return True
        self._calls.update((name, count + 1) for name, count in calls.items())
        return False

    def marks(self, name: str, gradient: torch.Tensor) -> Marks | None:
        """Return the units of the sample that ``gradient``, of any shape, holds here.

        None in calls that are not sampled.
        """
        calls = self._calls.get(name, 0)
        self._calls[name] = calls + 1
        return None if calls % self.every else self.taken(name, gradient)

    def taken(self, name: str, gradient: torch.Tensor) -> Marks | None:
        """Return the marks as ``marks`` does, of any shape, where all ranks know that this call is sampled."""
        try:
            layout = layout_of(gradient, Unit.AUTO if gradient.is_sparse else Unit.ROW)
        except TensorError:
            return None
        return Marks(name, layout, self._marker.marked(gradient, layout)) if layout.units and layout.width else None

    def count(self, marks: Marks, communicator: Communicator, reduced: Work | None = None) -> None:
        """Queue the sum of ``marks`` over the ranks behind the call ``reduced`` of their gradient, if any."""

        def run() -> None:
            communicator.ensure_healthy()
            sent = reduced.counted.bytes_sent if reduced and reduced.counted else 0
            holders, bytes_sent = allreduce_sum(communicator, marks.held.to(count_dtype(communicator.size)), sent)
            if not holders[-1]:
                self._add(marks, communicator.size, holders[:-1], bytes_sent)

        self._pending[marks.name] = communicator.worker.submit(run)

    def profiles(self) -> dict[str, Profile]:
        """Return the profile of each sampled parameter by its name, the same on all ranks.

        It waits for samples under way. Raises CostError (``bad-profile``) for impossible counts.
        """
        self._wait()
        with self._lock:
            return {name: tally.profile() for name, tally in self._tallies.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write all profiles to one JSON file, which ``zenc profile show`` reads.

        Raises ZencError (``unwritable-file``), and CostError (``bad-profile``) if there is nothing to write.
        """
        profiles = self.profiles()
        if not profiles:
            help = "zenc.attach(..., profiler=...) before the first step, and save after one"
            raise CostError(Diagnostic("bad-profile", "nothing was profiled yet", help=help))
        write_text(path, dump_profiles(profiles.values()))

    def state_dict(self) -> dict[str, Any]:
        """Return the counts so far, in plain values and tensors, for ``torch.save``; waits for samples under way."""
        self._wait()
        with self._lock:
            tallies = [tally.state() for tally in self._tallies.values()]
        as_tensors = [
            {name: torch.from_numpy(value) if isinstance(value, np.ndarray) else value for name, value in tally.items()}
            for tally in tallies
        ]
        settings = {"every": self.every, "sample": self.sample}
        return {**COUNTS.head, **settings, "calls": dict(self._calls), "tallies": as_tensors}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on counting from ``state``, on all ranks alike; counts of another number of ranks are left out at use.

        Raises CostError: ``bad-state`` unless it is such a state, and ``other-version``; then nothing has changed.
        """
        ensure_held(state)
        if isinstance(state, Mapping):
            COUNTS.ensure(state, "this state")
        try:
            if not isinstance(state, Mapping) or not isinstance(state["tallies"], list):
                raise ValueError("it has no list of counts")
            tallies = [HolderCounts.of_state(each) for each in state["tallies"]]
            calls = {str(name): int(count) for name, count in state.get("calls", {}).items()}
        except (LookupError, TypeError, ValueError, AttributeError, OverflowError, RuntimeError) as error:
            message = f"this is no state of a profiler: {first_line(error)}"
            raise CostError(Diagnostic("bad-state", message)) from error
        self._wait()
        with self._lock:
            self._calls, self._tallies = calls, {tally.name: tally for tally in tallies}

    def _wait(self) -> None:
        for work in list(self._pending.values()):
            try:
                work.wait()
            except ZencError:
                continue  # which broke the group, and is raised by the next call of the model

    def _add(self, marks: Marks, size: int, holders: torch.Tensor, bytes_sent: torch.Tensor) -> None:
        layout, name = marks.layout, marks.name
        with self._lock:
            tally = self._tallies.get(name)
            if tally is None or (tally.units, tally.width, tally.size) != (layout.units, layout.width, size):
                tally = HolderCounts(name, layout.units, layout.width, layout.dtype_name, size, self.sample)
                self._tallies[name] = tally
            tally.add(holders.to(torch.int64).numpy(), bytes_sent.numpy())
