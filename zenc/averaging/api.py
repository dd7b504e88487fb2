"""Averagings as ``zenc.open`` returns them, and ``zenc.load_averager``."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal, NoReturn

from zenc.api import AnyPath, OpenedText
from zenc.common.arguments import names_wrong_types

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.averaging.averager import Averager
    from zenc.averaging.picture import AveragingDrawing
    from zenc.averaging.pipeline import AveragingReport
    from zenc.averaging.table import AveragingTable
    from zenc.pipeline.request import Parameters


class AveragingText(OpenedText):
    """A text about an averaging, as ``zenc.open`` returns it: which groups of ranks average in which step."""

    kind: ClassVar[Literal["averaging"]] = "averaging"

    def check(self) -> AveragingReport:
        """Prove that a period of the averaging makes the mean, and its scheme among the ranks of each group.

        With a topology it is proved for its ranks, and levels have its sizes. Raises ZencError with all errors of the
        averaging, or of its scheme.
        """
        from zenc.averaging.pipeline import checked_averaging

        return checked_averaging(self.syntax, self.asked)

    def compile(self, *_: object, **__: object) -> NoReturn:
        """Raise SchemeError (``wrong-kind``): an averaging is compiled where it is loaded, for the groups there."""
        raise self.lacks("compile", "load it on a process group; or compile a scheme of the text by its name")

    def explain(self) -> AveragingTable:
        """Return the steps as a table; default: among the fewest ranks that the averaging is proved for.

        With a topology each step has its busiest link. Raises as ``check`` does.
        """
        from zenc.averaging.pipeline import plans_for
        from zenc.averaging.table import averaging_table

        report = self.check()
        proof = report.usual
        plans = plans_for(report.averaging, (*proof.group_sizes, proof.size))
        return averaging_table(report.averaging, proof, plans, self.asked.topology)

    def draw(self) -> AveragingDrawing:
        """Draw the groups of each step; default: among the ranks of ``explain``.

        Raises as ``check`` does, and DrawingError for more than can be drawn.
        """
        from zenc.averaging.picture import draw_averaging

        report = self.check()
        return draw_averaging(report.averaging, report.usual)

    def load(
        self, group: dist.ProcessGroup | None = None, *, deadline: float | None = None, shared_memory: bool = True
    ) -> Averager:
        """Make the averaging ready to run on a process group, proved for its size; see ``zenc.Averager``."""
        from zenc.averaging.averager import Averager

        return Averager(None, lambda size: self.at(size).check(), group, deadline=deadline, shared_memory=shared_memory)


@names_wrong_types
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
    from zenc.averaging.averager import Averager

    given = None, what, group
    return Averager(*given, params=params, scheme=scheme, deadline=deadline, shared_memory=shared_memory)
