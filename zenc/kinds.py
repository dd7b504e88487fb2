"""Kinds of texts: ``zenc.open`` returns a scheme, a strategy, an averaging, or a plan of another program."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, TypeAlias

from zenc.api import AnyPath, Asked, SchemeText, asked, loaded
from zenc.averaging.api import AveragingText
from zenc.averaging.resolve import AVERAGING
from zenc.common.arguments import names_wrong_types
from zenc.errors import Diagnostic, SchemeError
from zenc.scheme.collector import pick
from zenc.strategy.api import StrategyText
from zenc.strategy.resolve import STRATEGY

if TYPE_CHECKING:
    import torch.distributed as dist
    from typing_extensions import Unpack

    from zenc.codegen.artifact import Artifact
    from zenc.pipeline.request import Architectures, Parameters, Target
    from zenc.referee.open import PlanReport
    from zenc.runtime.call.collective import Collective
    from zenc.topology.model import Topology


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


Opened: TypeAlias = SchemeText | StrategyText | AveragingText | PlanFile


@names_wrong_types
def open(
    what: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
    link: float | str | None = None,
) -> Opened:
    """Read a text, and return its scheme, strategy or averaging, or a plan of another program, as ``kind`` says.

        found = zenc.open("balanced", ranks=8)
        sizes, costs = found.check().sizes, found.explain().text()
        found.compile("cuda").save("build/balanced")

    All kinds have ``check``, ``compile``, ``explain``, ``draw`` and ``load``; a verb that a kind lacks raises
    SchemeError (``wrong-kind``): a strategy is not loaded but attached, and an averaging compiled where it is loaded.

    Args:
        what: a ``.zen`` file, the name of a scheme, strategy or averaging that comes with zenc, or a text itself. It is
            about its strategy where it has one, else about its averaging, else about its scheme. Or the file of a plan
            by MSCCL, MSCCL++, TE-CCL or ForestColl, which takes no other argument, and is checked, compiled or loaded.
        ranks: their number. Default: the topology's, or any; what needs one number takes a usual one.
        params: values of the parameters.
        scheme: the name of the scheme, strategy or averaging, where the text has several.
        topology: links that every move must have a way over; its ranks are the ranks.
        link: the bandwidth between ranks, as ``zenc.compile`` takes it; for schemes alone.

    Raises:
        SchemeSyntaxError: with all syntax errors.
        SchemeError: the file can't be read, or has several strategies or averagings, and none was named; a plan of
            another program is given other arguments (``wrong-kind``).
    """
    if (plan := plan_file(what)) is not None:
        if ranks or params or scheme or topology or link is not None:
            raise lacks(what, "other ranks, links or parameters")
        return plan
    found = open_summing(what, ranks=ranks, params=params, scheme=scheme, topology=topology, link=link)
    is_averaging = found.kind == "scheme" and pick(AVERAGING, found.syntax, scheme) is not None
    return AveragingText(found.syntax, found.asked).without_link() if is_averaging else found


def open_summing(what: AnyPath, **given: Unpack[Asked]) -> SchemeText | StrategyText:
    """Return the sums of gradients in ``what``, as ``open`` does: its strategy or scheme, also beside averagings."""
    syntax, request = asked(what, **given)
    is_strategy = pick(STRATEGY, syntax, request.scheme) is not None
    return StrategyText(syntax, request).without_link() if is_strategy else SchemeText(syntax, request)
