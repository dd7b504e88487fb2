"""``zenc doctor``: a check of this machine for what zenc needs."""

from __future__ import annotations

from textwrap import TextWrapper
from typing import TYPE_CHECKING

from zenc.cli.common import JsonOption, print_json, reporting

if TYPE_CHECKING:
    from zenc.assist.finding import Finding

EXAMPLES = """\b
Examples:
  zenc doctor
  zenc doctor --json
  torchrun --nproc-per-node 1 --no-python zenc doctor    as a job of your cluster sees it
"""

WIDTH = 120


def doctor(json: JsonOption = False) -> None:
    """Try what zenc needs on this machine, and say what to do about what is missing.

    It looks at zenc's own files, PyTorch and its version, the C++ compiler, the cache of kernels and its permissions, a
    library that is compiled and loaded there, the network interface that gloo takes, the deadline, GPUs, the compiler
    of their kernels, NCCL, and matplotlib.

    The exit status is 1 if something is broken. What is absent is not needed by what can run here.
    """
    found = []
    with reporting(json, "doctor" if json else ""):
        from zenc.assist.checks import examine

        for finding in examine():
            found.append(finding)
            if not json:
                print(_text(finding), flush=True)
    broken = [finding.name for finding in found if finding.status == "broken"]
    if json:
        print_json({"ok": not broken, "findings": [finding.to_json() for finding in found]})
    elif broken:
        print(f"broken: {', '.join(broken)}; mend the first of them first")
    else:
        print("zenc can work here")
    if broken:
        raise SystemExit(1)


def _text(finding: Finding) -> str:
    advice = [] if finding.status == "good" else [f"do: {finding.help}"] if finding.help else []
    more = [f"see: zenc help {finding.id}"] if finding.id else []
    head = f"{finding.status:8} {finding.name:13} {finding.value}"
    edge = " " * 23
    layout = TextWrapper(WIDTH, initial_indent=edge, subsequent_indent=edge + "  ", break_long_words=False)
    return "\n".join([head, *(layout.fill(line) for line in (*finding.notes, *advice, *more))])
