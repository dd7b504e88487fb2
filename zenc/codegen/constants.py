"""Headers that are made of ``zenc.wire``: the constants and the layouts that C++ shares with Python.

``python -m zenc.codegen.constants`` writes them, and they are checked in: so there is one text that people read, that
clang-format checks and that compilers include, and a build renders nothing. A test holds them to ``zenc.wire``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from zenc.codegen.render import environment
from zenc.codegen.templates import templates_dir
from zenc.wire import constants, structs

HEADERS = {
    "shared/zenc/constants.h": "shared/constants.h.j2",
    "cuda/zenc_host/call/call_args.h": "cuda/zenc_host/call/call_args.h.j2",
}
"""Header -> its template, below ``templates``."""


def rendered() -> dict[str, str]:
    """The text of each of the headers, by its path below ``templates``."""
    values = {**vars(structs), **vars(constants), "outcomes": _enumerators()}
    made = environment().overlay()
    made.filters["declared"] = declared
    return {header: made.get_template(template).render(values) for header, template in HEADERS.items()}


def declared(layout: Sequence[structs.Field]) -> str:
    """The members of a struct, one a line, and what they hold behind them."""
    arrays = [f"[{each.length}]" if each.length else "" for each in layout]
    lines = [f"    {each.kind} {each.name}{array};" for each, array in zip(layout, arrays, strict=True)]
    return _commented(lines, [each.about for each in layout])


def _enumerators() -> str:
    lines = [f"    {outcome.name} = {outcome.value}," for outcome in constants.CallOutcome]
    return _commented(lines, [outcome.about for outcome in constants.CallOutcome])


def _commented(lines: Sequence[str], comments: Sequence[str]) -> str:
    """Lines with comments behind them, in one column where they follow each other, as clang-format has them."""
    shown: list[str] = []
    for has_comment, group in groupby(zip(lines, comments, strict=True), key=lambda pair: bool(pair[1])):
        pairs = list(group)
        column = max(len(line) for line, _ in pairs)
        shown += [f"{line:{column}}  // {comment}" if has_comment else line for line, comment in pairs]
    return "\n".join(shown)


def main() -> None:
    """Write the headers into ``templates``."""
    for header, text in rendered().items():
        (templates_dir() / header).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
