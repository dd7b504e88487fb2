"""Plans of other programs as ``zenc.open`` returns them."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from zenc.api import AnyPath, loaded
from zenc.errors import Diagnostic, SchemeError

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.codegen.artifact import Artifact
    from zenc.pipeline.request import Architectures, Target
    from zenc.referee.open import PlanReport
    from zenc.runtime.call.collective import Collective


@dataclass(frozen=True, slots=True, repr=False)
class PlanFile:
    """The file of a plan that another synthesizer wrote, as ``zenc.open`` returns it: who sends what to whom."""

    kind: ClassVar[Literal["plan"]] = "plan"
    path: AnyPath

    def __repr__(self) -> str:
        return f"<zenc.PlanFile {os.fspath(self.path)}>"

    def check(self) -> PlanReport:
        """Prove the plan; raise PlanError for a damaged one, VerificationError with mistakes in the file's terms."""
        from zenc.referee.open import check_plan

        return check_plan(self.path)

    def compile(self, target: Target = "cpu", arch: Architectures = None) -> Artifact:
        """Compile the plan, an all-reduce, or an all-gather behind its reverse; raise also PlanError for another."""
        from zenc.pipeline.foreign import compile_plan

        return compile_plan(self.path, target, arch)

    def load(
        self, group: dist.ProcessGroup | None = None, *, deadline: float | None = None, shared_memory: bool = True
    ) -> Collective:
        """Make the plan ready to run on a process group of as many ranks as it has gpus; see ``zenc.load``."""
        return loaded(lambda _: self.compile(), group, deadline, None, shared_memory)

    def explain(self, *_: object, **__: object) -> NoReturn:
        """Raise SchemeError (``wrong-kind``): a plan of another program has no scheme to explain or draw."""
        raise lacks(self.path, "scheme to explain or draw")

    draw = programs = explain


def lacks(path: AnyPath, what: str) -> SchemeError:
    """Return the error of a plan that is asked for ``what`` it does not have."""
    message = f"{os.fspath(path)} is a plan of another program, which has no {what}"
    return SchemeError(Diagnostic("wrong-kind", message, help="check it, compile it, or load it on a process group"))


def plan_file(what: AnyPath) -> PlanFile | None:
    """Return the plan of another program in the file ``what``, recognised by its contents; None where it has none."""
    if not os.path.isfile(what) or os.fspath(what).endswith(".zen"):
        return None
    from zenc.referee.open import kind_of

    return PlanFile(what) if kind_of(what) else None
