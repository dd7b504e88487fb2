"""Public functions for averagings, as ``zenc.api`` has them for schemes: check, explain, draw and load.

A text is about its averaging where it has one and no strategy; ``scheme`` then names one of several. Arguments are as
in ``zenc.api``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zenc.api import AnyPath, asked
from zenc.averaging.resolve import AVERAGING
from zenc.language.files import load_file, locate
from zenc.scheme.collector import pick

if TYPE_CHECKING:
    import torch.distributed as dist

    from zenc.codegen.artifact import Artifact
    from zenc.draw.averaging import AveragingDrawing
    from zenc.pipeline.averagings import AveragingReport
    from zenc.pipeline.request import Parameters
    from zenc.runtime.averager import Averager
    from zenc.simulator.averaging_table import AveragingTable
    from zenc.topology.model import Topology


def is_averaging(path: AnyPath, scheme: str | None = None) -> bool:
    """Return whether the file at ``path``, or the part called ``scheme`` in it, is an averaging.

    Raises SchemeSyntaxError, and SchemeError for a file with several averagings where none is named.
    """
    return pick(AVERAGING, load_file(locate(path)), scheme) is not None


def check_averaging(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> AveragingReport:
    """Prove that a period of the averaging in ``path`` makes the mean, and its scheme among the ranks of each group.

    With a ``topology`` it is proved for its ranks, and levels have its sizes. Raises ZencError with all errors of the
    averaging, or of its scheme.
    """
    syntax, request = asked(path, ranks, params, scheme, topology)
    from zenc.pipeline.averagings import resolve_averaging, verify_averaging

    averaging, warnings = resolve_averaging(syntax, request)
    return verify_averaging(averaging, request, warnings)


def explain_averaging(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> AveragingTable:
    """Return the steps of the averaging in ``path`` as a table; default: among the fewest ranks that it is proved for.

    With a ``topology`` each step has its busiest link. Raises as ``check_averaging`` does.
    """
    report = check_averaging(path, ranks=ranks, params=params, scheme=scheme, topology=topology)
    from zenc.pipeline.averagings import plans_for
    from zenc.simulator.averaging_table import averaging_table

    proof = report.proofs[0]
    return averaging_table(
        report.averaging, proof, plans_for(report.averaging, (*proof.group_sizes, proof.size)), topology
    )


def draw_averaging(
    path: AnyPath,
    *,
    ranks: int | None = None,
    params: Parameters | None = None,
    scheme: str | None = None,
    topology: Topology | None = None,
) -> AveragingDrawing:
    """Draw the groups of each step of the averaging in ``path``; default: among the ranks of ``explain``.

    Raises as ``check_averaging`` does, and DrawingError for more than can be drawn.
    """
    report = check_averaging(path, ranks=ranks, params=params, scheme=scheme, topology=topology)
    from zenc.draw.averaging import draw_averaging

    return draw_averaging(report.averaging, report.proofs[0])


def load_averager(
    what: AnyPath,
    group: dist.ProcessGroup | None = None,
    *,
    params: Parameters | None = None,
    scheme: str | None = None,
    deadline: float | None = None,
    shared_memory: bool = True,
) -> Averager:
    """Make an averaging ready to run on a process group. All ranks of the group call this together.

    Args:
        what: a ``.zen`` file, or the name of an averaging that comes with zenc. It is proved for the size of the group.
        group: the ranks that take part; default: all. Any backend.
        params: values of the averaging's parameters.
        scheme: which averaging, where the file has several.
        deadline: seconds that any single wait may take; default: ZENC_DEADLINE_S, or the timeout of ``group``.
        shared_memory: as in ``zenc.load``.

    Raises:
        ZencError: this rank's own averaging, compiler or cache is at fault.
        SynchronisationError: another rank failed, holds another averaging, or did not come.
    """
    from zenc.pipeline import backend
    from zenc.pipeline.averagings import averaging_artifacts
    from zenc.runtime.averager import Averager, Connected, GroupCollective
    from zenc.runtime.group.process_groups import communicator_among, communicator_for
    from zenc.runtime.load import deadline_of, load_among, obtained_by_all

    def obtain(size: int) -> tuple[AveragingReport, dict[int, Artifact]]:
        report = check_averaging(what, ranks=size, params=params, scheme=scheme)
        return report, averaging_artifacts(report)

    def told(found: tuple[AveragingReport, dict[int, Artifact]]) -> dict[str, str]:
        report, artifacts = found
        divisions, plans = ", ".join(report.divisions), " ".join(each.digest[:12] for each in artifacts.values())
        return {"averaging": f"{report.averaging.name} {divisions}", "plan": plans, "shared_memory": str(shared_memory)}

    def made(group: dist.ProcessGroup | None) -> Connected:
        report, artifacts = obtained_by_all(obtain, told, group, deadline)
        seconds = deadline_of(deadline, group)
        whole = communicator_for(group, seconds)
        collectives: list[GroupCollective | None] = []
        for groups in report.proofs[0].steps:
            own = next(each for each in groups if whole.rank in each)
            among = communicator_among(own, whole, seconds)
            if len(own) == 1:
                collectives.append(None)
                continue
            one = load_among(among, artifacts.__getitem__, backend, seconds, shared_memory=shared_memory)
            collectives.append(GroupCollective(one.artifact, one.communicator, one.backend_on))
        return Connected(report.averaging, whole, tuple(collectives))

    return Averager(made(group), deadline_of(deadline, group), made)
