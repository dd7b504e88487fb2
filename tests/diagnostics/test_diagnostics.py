"""Each diagnostic of a scheme's text has a file that earns it, alone and at the right place, and one that does not.

The first line of a bad file is ``# expect: LINE:COLUMN``.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from zenc.diagnostics import DIAGNOSTICS
from zenc.errors import Diagnostic, ZencError
from zenc.language.load import load_file
from zenc.scheme.resolve import resolve

HERE = Path(__file__).parent
STAGES = ("syntax", "load", "scheme")
NOT_IN_A_TEXT = {"unreadable-file", "unknown-scheme", "unknown-parameter"}
IDS = [id for id, (stage, _) in DIAGNOSTICS.items() if stage in STAGES and id not in NOT_IN_A_TEXT]


def diagnose(path: Path) -> tuple[Diagnostic, ...]:
    try:
        return resolve(load_file(path))[1]
    except ZencError as error:
        return error.diagnostics


@pytest.mark.parametrize("id", IDS)
def test_the_bad_text_earns_it_alone(id: str) -> None:
    path = HERE / f"{id}.bad.zen"
    expected = re.match(r"# expect: (\d+:\d+)\n", path.read_bytes().decode("utf-8", "replace"))
    assert expected, "the first line says where"
    (diagnostic,) = diagnose(path)
    assert diagnostic.id == id
    assert diagnostic.span is not None
    assert f"{diagnostic.span.line}:{diagnostic.span.column}" == expected[1]
    assert diagnostic.span.source.name == str(path)
    assert (diagnostic.severity == "warning") == DIAGNOSTICS[id][1].endswith("(warning)")


@pytest.mark.parametrize("id", IDS)
def test_the_good_text_is_clean(id: str) -> None:
    assert diagnose(HERE / f"{id}.good.zen") == ()


def test_no_file_is_left_over() -> None:
    assert {path.name.split(".")[0] for path in HERE.glob("*.zen")} == set(IDS)


@pytest.mark.parametrize("id", DIAGNOSTICS)
def test_it_is_documented(id: str) -> None:
    page = HERE.parents[1] / "docs" / "diagnostics.md"
    assert f"\n### `{id}`\n" in page.read_text(encoding="utf-8")


def test_every_id_that_is_used_is_registered() -> None:
    package = HERE.parents[1] / "zenc"
    used = re.compile(r"""(?:Diagnostic|report\.error|report\.warn|_fail)\(\s*"([a-z0-9-]+)\"""")
    for folder in ("language", "scheme"):
        for path in (package / folder).glob("*.py"):
            assert set(used.findall(path.read_text(encoding="utf-8"))) <= set(DIAGNOSTICS), path
