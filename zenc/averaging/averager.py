"""Averager: an averaging on a process group, which averages the tensors of each rank with those of its group, by step.

    Averager = Connected  step  Fragment*                # steps made so far; the parameters, where any are held

Average k comes after step ``(k + 1) * interval``, of fragment k mod their number; its sum begins earlier, by the
steps that it may take. Its groups are those of division ``k / fragments mod period``.

Within a step no rank waits for another group. Messages carry the number of the average, so ranks that are in different
ones find out when they meet, or when a wait passes its deadline; before the first average, and after a state was
loaded, all ranks agree on it. Means of a group have the same bits on all of its ranks, as every result of a collective.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any, TypeAlias

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.hooks import RemovableHandle

from zenc.averaging.averages import (
    Connected,
    Fragment,
    GroupCollective,
    ensure_parameters,
    fragments_of,
    in_group,
    read_into,
    written,
)
from zenc.averaging.model import Averaging, division_text
from zenc.averaging.pipeline import AveragingReport, averaging_artifacts, checked_averaging
from zenc.codegen.artifact import Artifact
from zenc.common.arguments import names_wrong_types
from zenc.common.versioned import STEPS
from zenc.errors import CostError, Diagnostic, SynchronisationError, TensorError
from zenc.language.files import read_program
from zenc.pipeline import backend
from zenc.pipeline.request import Parameters, Request
from zenc.runtime.call.collective import Collective
from zenc.runtime.group.agreement import GroupAgreement
from zenc.runtime.group.process_groups import again_if_left, communicator_among, communicator_for
from zenc.runtime.load import deadline_of, load_among, obtained_by_all
from zenc.scheme.compression_words import words_of

Model: TypeAlias = "nn.Module | Iterable[tuple[str, torch.Tensor]]"
"""A module, or the names of parameters with these."""


class Averager:
    """An averaging at work. All ranks of the group make it together.

        averager = zenc.Averager(model, "diloco")
        averager.follow(optimizer)

    All ranks must make the same steps, with tensors of the same shapes and dtypes in the same order.
    """

    @names_wrong_types
    @torch.inference_mode(False)
    def __init__(
        self,
        model: Model | None,
        averaging: str | os.PathLike[str] | Callable[[int], AveragingReport],
        group: dist.ProcessGroup | None = None,
        *,
        params: Parameters | None = None,
        scheme: str | None = None,
        deadline: float | None = None,
        shared_memory: bool = True,
    ) -> None:
        """Make an averaging ready to run on a process group.

        Args:
            model: the module whose parameters that have gradients are averaged, or these with their names; they begin
                with the same values on all ranks. None: each call gets its parameters, which an averaging with an outer
                optimizer, fragments or overlap does not allow.
            averaging: a ``.zen`` file, a text, or the name of an averaging that comes with zenc; or what proves one for
                a number of ranks. It is proved for the size of the group.
            group: the ranks that take part; default: all. Any backend.
            params: values of the averaging's parameters.
            scheme: which averaging, where the file has several.
            deadline: seconds that any single wait may take; default: ZENC_DEADLINE_S, or the timeout of ``group``.
            shared_memory: as in ``zenc.load``.

        Raises:
            ZencError: this rank's own averaging, compiler or cache is at fault.
            SynchronisationError: another rank failed, holds another averaging, or did not come.
        """

        def obtain(size: int) -> tuple[AveragingReport, dict[int, Artifact]]:
            # the text is read here, where all ranks hear of its errors
            if callable(averaging):
                report = averaging(size)
            else:
                report = checked_averaging(read_program(averaging), Request(size, params, scheme))
            return report, averaging_artifacts(report)

        self.step = 0
        """The number of steps made so far, since the averager was made or rebuilt; an average comes after some."""
        self._obtain, self._given, self._shared_memory = obtain, deadline, shared_memory
        self._at_work = self._connected(group, None)
        self._deadline = deadline_of(deadline, group)
        self._agreed = False
        self._fragments: Sequence[Fragment] = ()
        if model is not None:
            if isinstance(model, nn.Module):
                model = [(name, each) for name, each in model.named_parameters() if each.requires_grad]
            own, named = self.averaging, ensure_parameters(model)
            self._fragments = fragments_of(named, own.fragments.count, own.outer)

    def _connected(self, group: dist.ProcessGroup | None, before: Connected | None) -> Connected:
        """Return the averaging among the ranks of ``group``, which goes on from the residuals of ``before``."""
        report, artifacts = obtained_by_all(self._obtain, self._told, group, self._given)
        seconds = deadline_of(self._given, group)
        whole = communicator_for(group, seconds)
        whole.users += 1
        collectives: list[Collective | None] = []
        for groups in report.proofs[0].steps:
            own = next(each for each in groups if whole.rank in each)
            among = communicator_among(own, whole, seconds)
            if len(own) == 1:
                collectives.append(None)
                continue
            old = before.collectives[0] if before and report.averaging.outer else None
            given = among, artifacts.__getitem__, backend, seconds
            collectives.append(in_group(load_among(*given, shared_memory=self._shared_memory, before=old)))
        return Connected(report.averaging, whole, tuple(collectives))

    def _told(self, found: tuple[AveragingReport, dict[int, Artifact]]) -> dict[str, str]:
        report, artifacts = found
        divisions, plans = ", ".join(report.divisions), " ".join(each.digest[:12] for each in artifacts.values())
        words = "".join(f", {key} {words_of(value, True)}" for key, value in report.averaging.words.items())
        told = {"averaging": f"{report.averaging.name} {divisions}{words}", "plan": plans}
        return {**told, "shared_memory": str(self._shared_memory)}

    @property
    def averaging(self) -> Averaging:
        """The groups of each average of a period, when it comes, and the scheme of each."""
        return self._at_work.averaging

    @property
    def rank(self) -> int:
        """The rank of this process among all."""
        return self._at_work.whole.rank

    @property
    def averages(self) -> int:
        """The number of averages that have ended, each of one fragment of the parameters."""
        return self.step // self.averaging.interval

    @property
    def group(self) -> tuple[int, ...]:
        """The ranks that this one averages with next, itself among them."""
        groups = self.averaging.groups(self._at_work.whole.size)[self._place(self.averages)]
        return next(group for group in groups if self.rank in group)

    @property
    def collectives(self) -> tuple[Collective | None, ...]:
        """The collective of this rank's group in each average of a period; None where it is alone."""
        return self._at_work.collectives

    def _place(self, average: int) -> int:
        """Return the place in a period of an ``average``."""
        return average // self.averaging.fragments.count % self.averaging.period

    def average_parameters(self, parameters: Iterable[torch.Tensor] | None = None) -> None:
        """Go on by a step, after that of the optimizer: begin and end the averages that are due, in place.

        Without ``parameters`` they are those of the model; else any, of any shapes. They are dense, and the same on all
        ranks but for their values; one that comes twice counts once.

        Raises:
            TensorError: for a tensor that can't be averaged; the step has not been made.
            SynchronisationError: ranks are in different steps, differ in their tensors, or a wait passed its deadline.
        """
        fragments, own, step = self._of(parameters), self.averaging, self.step + 1
        if not self._agreed:
            self._agree(fragments)
        late = own.overlap.steps if own.overlap else 0
        average, place = divmod(step - 1, own.interval)
        fragment = fragments[average % len(fragments)]
        try:
            if place + 1 == own.interval - late:
                self._begin(fragment, average)
            if place + 1 == own.interval:
                due = [bucket for bucket in fragment if bucket.flat is not None]
                for bucket in due:
                    bucket.wait()
                for bucket in due:
                    bucket.finish(own.outer, own.overlap.keep if own.overlap else 0.0)
        except SynchronisationError as error:
            self._leave(error)
            raise SynchronisationError([self._noted(each) for each in error.diagnostics]) from error
        self.step = step

    def _begin(self, fragment: Fragment, average: int) -> None:
        """Begin the sums of ``fragment``; where nothing waits for them make them one after another, for less memory."""
        collective, own = self._at_work.collectives[self._place(average)], self.averaging
        if isinstance(collective, GroupCollective):
            collective.step = average
        plain = own.outer is None and own.overlap is None
        for bucket in fragment:
            bucket.begin(collective, plain)
            if plain:
                bucket.wait()
                bucket.finish(None, 0.0)

    def _of(self, parameters: Iterable[torch.Tensor] | None) -> Sequence[Fragment]:
        """Return the fragments of the model, or of ``parameters``. Raises TensorError (``needs-model``)."""
        own = self.averaging
        if parameters is None and self._fragments:
            return self._fragments
        if parameters is None or self._fragments or own.outer or own.overlap or own.fragments.count > 1:
            message = f"averaging '{own.name}' is of the parameters of one model, whose values it knows from the start"
            help = f'write zenc.Averager(model, "{own.name}") before the first step, and give no parameters later'
            raise TensorError(Diagnostic("needs-model", message, help=help))
        return fragments_of(ensure_parameters((str(at), each) for at, each in enumerate(parameters)), 1, None)

    def rebuild(self, group: dist.ProcessGroup | None = None) -> None:
        """Go on among the ranks of ``group``, more or fewer than before; the default are all ranks.

        All of them take part: those that have this averager call ``rebuild``, and new ones make theirs, as it was made.
        A period begins, at whose end all ranks have the mean of their present values; ``follow`` goes on.

        An average that failed was made by some ranks maybe, and not by others: each tensor has its values still, or the
        mean of its group. New ranks have parameters of their own: give them those of another one before. Under an outer
        optimizer all go on from the parameters that it stepped to last, so new ranks, and those that differ, load the
        state of another rank afterwards.

        Raises ZencError as the averager did when it was made, such as ``wrong-size`` where the averaging is not for
        this number of ranks.
        """
        message = "this rank has left the group, and rebuilds its averager in another one"
        self._leave(SynchronisationError(Diagnostic("group-broken", message)))
        self._at_work = again_if_left(lambda: self._connected(group, self._at_work))
        for bucket in (each for fragment in self._fragments for each in fragment):
            bucket.work = bucket.flat = None
        self.step, self._agreed = 0, False

    def follow(self, optimizer: torch.optim.Optimizer) -> RemovableHandle:
        """Call ``average_parameters`` after each step of ``optimizer``, until the handle is removed.

        The parameters are those of the model, else of the optimizer. Every rank must make every step: with a
        ``GradScaler``, which may leave out a step on a single rank, call ``average_parameters`` instead.
        """

        def averaged(*_: object) -> None:
            whole = None if self._fragments else (each for of in optimizer.param_groups for each in of["params"])
            self.average_parameters(whole)

        handle: RemovableHandle = optimizer.register_step_post_hook(averaged)
        return handle

    def state_dict(self, together: bool = False) -> dict[str, Any]:
        """Return the number of the step, and the words that it counts by, for a checkpoint: plain values and tensors.

        Of an outer optimizer also, by the names of parameters, the parameters that it steps from and its momentum,
        equal on all ranks; of a sum under way what comes of it; and the residuals of a scheme that leaves something
        out: this rank's own or, ``together`` on all ranks, their sums, from which any number of ranks goes on.
        """
        collective, kept = self._at_work.collectives[0], {"parameters": written(self._fragments)}
        if collective is not None and collective.keeper is not None and collective.keeper.names:
            kept["residuals"] = collective.state_dict(together)
        return {**STEPS.head, "step": self.step, **self._counted(), **{key: each for key, each in kept.items() if each}}

    def _counted(self) -> dict[str, Any]:
        """Return the words by which steps count."""
        own = self.averaging
        words = {key: words_of(value) for key, value in own.words.items() if key != "outer"}
        return {"divisions": list(map(division_text, own.divisions)), **({"words": words} if words else {})}

    @torch.inference_mode(False)
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from ``state``, on all ranks; the next average finds out whether all have loaded the same step.

        Parameters are the model's to load. Raises CostError: ``bad-state`` unless it is a state of this averaging, and
        ``other-version``; TensorError as ``Collective.load_state_dict`` does.
        """
        STEPS.ensure(state, "this state")
        step, own = state.get("step"), self._counted()
        if not isinstance(step, int) or step < 0 or {k: state[k] for k in ("divisions", "words") if k in state} != own:
            message = f"this is no state of averaging '{self.averaging.name}'"
            period = [*own["divisions"], *(f"{key}: {value}" for key, value in own.get("words", {}).items())]
            raise CostError(Diagnostic("bad-state", message, help=f"its period is {', '.join(period)}"))
        late = self.averaging.overlap.steps if self.averaging.overlap else 0
        ended, begun = (steps // self.averaging.interval for steps in (step, step + late))
        under_way = self._fragments[ended % len(self._fragments)] if begun > ended else ()
        read_into(self._fragments, state.get("parameters", {}), under_way)
        collective: Any = self._at_work.collectives[0]
        if collective is not None and collective.keeper is not None:
            nothing = None if begun else {**collective.state_dict(), "tensors": {}}
            collective.load_state_dict(state.get("residuals", nothing))
            collective.keeper.is_closed = begun >= self.averaging.fragments.count  # others have no residuals yet
        self.step, self._agreed = step, False

    def _agree(self, fragments: Sequence[Fragment]) -> None:
        """Go on where all ranks are in the same step, and have as many tensors of as many values, and equal anchors."""
        buckets = [bucket for fragment in fragments for bucket in fragment]
        tensors = [each for bucket in buckets for _, each in bucket.named]
        values = sum(each.numel() for each in tensors)
        told = f"{self.averaging.name} in step {self.step}, of {len(tensors)} tensors with {values:,} values"
        digest = blake2b(digest_size=8)
        for kept in (vector for bucket in buckets for vector in (bucket.anchor, bucket.velocity) if vector is not None):
            digest.update(kept.cpu().numpy().tobytes())
        self._at_work.whole.ensure_healthy()
        options = {"averaging": told, "first parameters": digest.hexdigest()}
        GroupAgreement(self._at_work.whole, self._deadline).reach(options)
        for collective in filter(None, self.collectives):
            collective.ensure_takes(each.dtype for each in tensors)
        self._agreed = True

    def _leave(self, error: SynchronisationError) -> None:
        """Leave the groups of all steps, so that no rank waits for this one in another."""
        for collective in self._at_work.collectives:
            if collective is not None and collective.communicator.broken is None:
                collective.communicator.abort(error, None)

    def _noted(self, diagnostic: Diagnostic) -> Diagnostic:
        note = f"this rank is in step {self.step} of averaging '{self.averaging.name}', with ranks {list(self.group)}"
        return replace(diagnostic, notes=(*diagnostic.notes, note))

    def __repr__(self) -> str:
        return f"<zenc.Averager {self.averaging.name} rank {self.rank} of {self._at_work.whole.size}, step {self.step}>"
