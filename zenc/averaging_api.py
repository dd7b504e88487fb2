"""``zenc.open``, averagings as it returns them, and ``zenc.load_averager``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn, TypeAlias

from zenc.api import AnyPath, Asked, OpenedText, SchemeText, asked
from zenc.averaging.resolve import AVERAGING
from zenc.plan_api import PlanFile, lacks, plan_file
from zenc.scheme.collector import pick
from zenc.scheme.strategies import STRATEGY
from zenc.strategy_api import StrategyText

if TYPE_CHECKING:
    import torch.distributed as dist
    from typing_extensions import Unpack

    from zenc.draw.averaging import AveragingDrawing
    from zenc.pipeline.averager import Averager
    from zenc.pipeline.averagings import AveragingReport
    from zenc.pipeline.request import Parameters
    from zenc.simulator.averaging_table import AveragingTable
    from zenc.topology.model import Topology


class AveragingText(OpenedText):
    """A text about an averaging, as ``zenc.open`` returns it: which groups of ranks average in which step."""

    kind: ClassVar[Literal["averaging"]] = "averaging"

    def check(self) -> AveragingReport:
        """Prove that a period of the averaging makes the mean, and its scheme among the ranks of each group.

        With a topology it is proved for its ranks, and levels have its sizes. Raises ZencError with all errors of the
        averaging, or of its scheme.
        """
        from zenc.pipeline.averagings import checked_averaging

        return checked_averaging(self.syntax, self.asked)

    def compile(self, *_: object, **__: object) -> NoReturn:
        """Raise SchemeError (``wrong-kind``): an averaging is compiled where it is loaded, for the groups there."""
        raise self.lacks("compile", "load it on a process group; or compile a scheme of the text by its name")

    def explain(self) -> AveragingTable:
        """Return the steps as a table; default: among the fewest ranks that the averaging is proved for.

        With a topology each step has its busiest link. Raises as ``check`` does.
        """
        from zenc.pipeline.averagings import plans_for
        from zenc.simulator.averaging_table import averaging_table

        report = self.check()
        proof = report.usual
        plans = plans_for(report.averaging, (*proof.group_sizes, proof.size))
        return averaging_table(report.averaging, proof, plans, self.asked.topology)

    def draw(self) -> AveragingDrawing:
        """Draw the groups of each step; default: among the ranks of ``explain``.

        Raises as ``check`` does, and DrawingError for more than can be drawn.
        """
        from zenc.draw.averaging import draw_averaging

        report = self.check()
        return draw_averaging(report.averaging, report.usual)

    def load(
        self, group: dist.ProcessGroup | None = None, *, deadline: float | None = None, shared_memory: bool = True
    ) -> Averager:
        """Make the averaging ready to run on a process group, proved for its size; see ``zenc.Averager``."""
        from zenc.pipeline.averager import Averager

        return Averager(None, lambda size: self.at(size).check(), group, deadline=deadline, shared_memory=shared_memory)


def load_averager(
    what: AnyPath,
    group: dist.ProcessGroup | None = None,
    *,
    params: Parameters | None = None,
    scheme: str | None = None,
    deadline: float | None = None,
    shared_memory: bool = True,
) -> Averager:
    """Make an averaging ready to run on a process group, for any parameters: ``zenc.Averager`` without a model."""
    from zenc.pipeline.averager import Averager

    given = None, what, group
    return Averager(*given, params=params, scheme=scheme, deadline=deadline, shared_memory=shared_memory)


Opened: TypeAlias = SchemeText | StrategyText | AveragingText | PlanFile


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
