"""``zenc check``: the proof of a scheme, or its errors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import zenc.cli.common as common
from zenc.plurals import count

if TYPE_CHECKING:
    from zenc.pipeline import Report

EXAMPLES = """\b
Examples:
  zenc check balanced
  zenc check mine.zen --ranks 6 --set seed=7
  zenc check mine.zen --topology cluster.zen
  zenc check balanced --topology 'nodes(2, gpus = 4)' --density 0.002
"""


def check(
    file: common.SchemeArgument,
    ranks: common.RanksOption = None,
    assignments: common.SetOption = None,
    scheme: common.NameOption = None,
    topology: common.TopologyOption = None,
    density: common.DensityOption = 0.01,
    units: common.UnitsOption = 1_000_000,
    width: common.WidthOption = 64,
    dtype: common.DtypeOption = "f32",
    json: common.JsonOption = False,
) -> None:
    """Prove that a scheme is right.

    Every rank must end with every contribution summed exactly once, and no rank may wait for ever. Without --ranks the
    proof is made for a range of group sizes. Exit status 1 means that it is wrong; why is on standard error.

    With --topology every move must also have a way there. Then the busiest link is told, and what the buffers of a rank
    take of its memory, as is to be expected for gradients of the given units, width, dtype and density. Where moves
    crowd a link inside the network, there is a warning.
    """
    path, params = common.locate(file), common.parameters(assignments)
    with common.reporting(json):
        from zenc import api
        from zenc.gradients.spec import GradientSpec

        cluster, ranks = common.on_topology(topology, ranks)
        gradient = GradientSpec(units, width, dtype, density)
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
                **({"placement": report.placement.to_json()} if report.placement else {}),
            }
        )
    else:
        if report.choice:
            print(f"{path}: {report.name} chooses from {len(report.candidates)}: {', '.join(report.candidates)}")
        for name, one in (report.candidates or {report.name: report}).items():
            rounds = ", ".join(f"{kind} {count(rounds, 'step')}" for kind, rounds in one.rounds.items())
            print(f"{path}: {name} is proved for {common.format_sizes(one.sizes)} ({rounds})")
            for line in one.placement.text() if one.placement else ():
                print(line)


def _proof_json(report: Report) -> dict[str, object]:
    return {"sizes": list(report.sizes), "rounds": report.rounds, "digest": report.plan.digest}
