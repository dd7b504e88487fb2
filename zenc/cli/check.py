"""``zenc check``: is a scheme right?"""

from __future__ import annotations

from zenc.cli.common import (
    JsonOption,
    NameOption,
    RanksOption,
    SchemeArgument,
    SetOption,
    locate,
    parameters,
    print_json,
    reporting,
    show_diagnostics,
)

EXAMPLES = """\b
Examples:
  zenc check balanced
  zenc check mine.zen --ranks 6 --set seed=7
"""


def check(
    file: SchemeArgument,
    ranks: RanksOption = None,
    assignments: SetOption = None,
    scheme: NameOption = None,
    json: JsonOption = False,
) -> None:
    """Prove that a scheme is right.

    Every rank must end with every contribution summed exactly once, and no rank may wait for ever. Without --ranks the
    proof is made for a range of group sizes. Exit status 1 means that it is wrong; why is on standard error.
    """
    path, params = locate(file), parameters(assignments)
    with reporting(json):
        from zenc import compiler

        report = compiler.check(path, ranks=ranks, params=params, scheme=scheme)
    show_diagnostics(report.warnings)
    push, pull = report.rounds_per_phase
    if json:
        print_json(
            {
                "ok": True,
                "scheme": report.scheme.name,
                "file": path,
                "sizes": list(report.sizes),
                "rounds": {"push": push, "pull": pull},
                "digest": report.plan.digest,
                "diagnostics": [warning.to_json() for warning in report.warnings],
            }
        )
    else:
        proved = f"{report.scheme.name} is proved for {spoken(report.sizes)}"
        print(f"{path}: {proved} (push {steps(push)}, pull {steps(pull)})")


def steps(count: int) -> str:
    return f"{count} step" if count == 1 else f"{count} steps"


def spoken(sizes: tuple[int, ...]) -> str:
    """Group sizes in words: ``1 to 16 ranks``, ``1 rank``, ``2, 4, 8 ranks``."""
    if len(sizes) == 1:
        return f"{sizes[0]} rank" if sizes[0] == 1 else f"{sizes[0]} ranks"
    if sizes == tuple(range(sizes[0], sizes[-1] + 1)):
        return f"{sizes[0]} to {sizes[-1]} ranks"
    return f"{', '.join(map(str, sizes))} ranks"
