"""``zenc check``: the proof of a scheme, or its errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import zenc.cli.common as common
from zenc.wording import count

if TYPE_CHECKING:
    from zenc.pipeline.averagings import AveragingReport
    from zenc.pipeline.request import Report
    from zenc.pipeline.strategies import StrategyReport

EXAMPLES = """\b
Examples:
  zenc check balanced
  zenc check mine.zen --ranks 6 --set seed=7
  zenc check mine.zen --topology cluster.zen
  zenc check balanced --topology 'nodes(2, gpus = 4)' --density 0.002
  zenc check step.zen --model model.json
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

    A file with a strategy is about that: each scheme that its rules name is proved, once. With --model there are
    warnings about rules that match none of its tensors, and about groups that DDP's buckets are too coarse for.

    Of an averaging it is proved that a period of steps gives all ranks the mean, exactly, and the scheme that sums is
    proved among the ranks of each group.
    """
    path, params = common.locate(file), common.parameters(assignments)
    with common.reporting(json):
        from zenc import api, averaging_api, strategy_api
        from zenc.gradients.spec import GradientSpec

        cluster, ranks = common.on_topology(topology, ranks)
        gradient = GradientSpec(units, width, dtype, density)
        if strategy_api.is_strategy(path, scheme):
            found = strategy_api.check_strategy(
                path, ranks=ranks, params=params, scheme=scheme, topology=cluster, gradient=gradient, model=model
            )
            return _show_strategy(path, found, json)
        common.ensure_no_model(model)
        if averaging_api.is_averaging(path, scheme):
            averaged = averaging_api.check_averaging(path, ranks=ranks, params=params, scheme=scheme, topology=cluster)
            return _show_averaging(path, averaged, json)
        report = api.check(path, ranks=ranks, params=params, scheme=scheme, topology=cluster, gradient=gradient)
    common.show_diagnostics(report.warnings)
    if json:
        common.print_json(
            {
                "ok": True,
                "scheme": report.name,
                "file": path,
                **_proof_json(report),
                "diagnostics": [warning.to_json() for warning in report.warnings],
                **(
                    {"candidates": {name: _proof_json(one) for name, one in report.candidates.items()}}
                    if report.choice
                    else {}
                ),
                **_placement_json(report),
            }
        )
    else:
        if report.choice:
            print(f"{path}: {report.name} chooses from {len(report.candidates)}: {', '.join(report.candidates)}")
        _print_proofs(path, report.candidates or {report.name: report})


def _show_strategy(path: str, found: StrategyReport, json: bool) -> None:
    common.show_diagnostics(found.warnings)
    strategy, proved = found.strategy, found.proved
    if json:
        schemes = {name: {**_proof_json(one), **_placement_json(one)} for name, one in proved.items()}
        told = [warning.to_json() for warning in found.warnings]
        own = {"ok": True, "strategy": strategy.name, "file": path}
        return common.print_json({**own, "rules": found.rules_json(), "schemes": schemes, "diagnostics": told})
    rules = count(len(strategy.rules), "rule")
    print(f"{path}: strategy {strategy.name} has {rules} with {count(len(proved), 'scheme')}: {', '.join(proved)}")
    _print_proofs(path, proved)


def _show_averaging(path: str, found: AveragingReport, json: bool) -> None:
    common.show_diagnostics(found.warnings)
    averaging = found.averaging
    if json:
        groups = {str(size): _proof_json(one) for size, one in found.groups.items()}
        told = [warning.to_json() for warning in found.warnings]
        own = {"ok": True, "averaging": averaging.name, "file": path, **found.to_json()}
        return common.print_json({**own, "groups": groups, "diagnostics": told})
    steps, sizes = count(averaging.period, "step"), common.format_sizes(found.sizes)
    print(f"{path}: averaging {averaging.name} has a period of {steps}: {', '.join(found.divisions)}")
    print(f"{path}: after a period all ranks have the mean, exactly; proved for {sizes}{found.starting}")
    for size, one in found.groups.items():
        _print_proofs(path, {f"{averaging.sums.name} in a group of {size}": one})


def _print_proofs(path: str, reports: Mapping[str, Report]) -> None:
    for name, one in reports.items():
        rounds = ", ".join(f"{kind} {count(rounds, 'step')}" for kind, rounds in one.rounds.items())
        print(f"{path}: {name} is proved for {common.format_sizes(one.sizes)} ({rounds})")
        for line in one.placement.text() if one.placement else ():
            print(line)


def _proof_json(report: Report) -> dict[str, object]:
    return {"sizes": list(report.sizes), "rounds": report.rounds, "digest": report.plan.digest}


def _placement_json(report: Report) -> dict[str, object]:
    return {"placement": report.placement.to_json()} if report.placement else {}
