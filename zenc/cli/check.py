"""``zenc check``: the proof of a scheme, or its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zenc.cli.common as common

if TYPE_CHECKING:
    from zenc.averaging.pipeline import AveragingReport
    from zenc.pipeline.request import Report
    from zenc.referee.open import PlanReport
    from zenc.strategy.pipeline import StrategyReport

EXAMPLES = """\b
Examples:
  zenc check balanced
  zenc check mine.zen --ranks 6 --set seed=7
  zenc check mine.zen --topology cluster.zen
  zenc check balanced --topology 'nodes(2, gpus = 4)' --density 0.002
  zenc check step.zen --model model.json
  zenc check allreduce.xml                 the plan of another synthesizer
"""


def check(
    file: common.WithStrategyArgument,
    ranks: common.RanksOption = None,
    assignments: common.SetOption = None,
    scheme: common.WhichOption = None,
    topology: common.TopologyOption = None,
    density: common.DensityOption = 0.01,
    units: common.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    model: common.TensorsOption = None,
    json: common.JsonOption = False,
) -> None:
    """Prove that a scheme is right, all schemes of a strategy, or an averaging.

    Every rank must end with every contribution summed exactly once, and no rank may wait for ever. Without --ranks the
    proof is made for a range of group sizes. Exit status 1 means that it is wrong; why is on standard error.

    With --topology every move must also have a way there. Then the busiest link is told, and what the buffers of a rank
    take of its memory, as is to be expected for gradients of the given units, width, dtype and density. Where moves
    crowd a link inside the network, there is a warning.

    In a file with a strategy each scheme that the rules name is proved, once. With --model there are
    warnings about rules that match none of its tensors, and about groups that DDP's buckets are too coarse for.

    For an averaging zenc proves that a period of steps gives all ranks the mean, exactly, and proves the scheme that
    sums among the ranks of each group.

    A file may also be a plan that another synthesizer wrote, recognised by its contents: MSCCL's XML, MSCCL++'s JSON,
    TE-CCL's JSON, ForestColl's trees. It is proved, or its faults are told in the terms of the file:
    sums, waits for ever, data races, messages that do not match, chunks out of range. Other options are not for it.
    """
    path, params = common.locate(file), common.parameters(assignments)
    common.is_plan(path, ranks, params, scheme, topology, model)
    report: Report | StrategyReport | AveragingReport | PlanReport
    with common.reporting(json, "check"):
        from zenc.gradients.spec import GradientSpec
        from zenc.kinds import open as open_text

        found = open_text(path, **common.asked(ranks, params, scheme, topology))
        common.ensure_no_model(found, model)
        gradient = GradientSpec(units, width, dtype, density)
        if found.kind == "averaging" or found.kind == "plan":
            report = found.check()
        else:
            report = found.check(gradient, model=model) if found.kind == "strategy" else found.check(gradient)
    common.show_diagnostics(report.warnings)
    told = {found.kind: report.name, "file": path, **report.to_json()}
    common.answer(json, told, "\n".join(report.lines(path)))
