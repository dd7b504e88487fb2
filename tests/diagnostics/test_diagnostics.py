"""Bad and good files of each diagnostic of a scheme's text: the bad one raises it alone, at the right place.
They are in the directory ``diagnostics``. The first line of a bad file is ``# expect: LINE:COLUMN MESSAGE``.
Diagnostics of the proof are tried with 1 to 16 ranks.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from zenc.api import check
from zenc.assist.manual import diagnostic, diagnostics
from zenc.common.diagnostics import DIAGNOSTICS
from zenc.errors import Diagnostic, ZencError
from zenc.kinds import open as open_text
from zenc.language.files import load_file
from zenc.scheme.resolve import resolve_any
from zenc.strategy.checks import NamedSize, check_model
from zenc.strategy.resolve import resolve_strategy
from zenc.topology.load import load_with_warnings

MODEL = [
    NamedSize(name, bytes)
    for name, bytes in (
        ("h.1.weight", 4 << 20),
        ("h.0.weight", 40 << 20),
        ("h.0.bias", 1 << 18),
        ("wte.weight", 4 << 20),
    )
]
ROOT = Path(__file__).parents[2]
TEXTS = ROOT / "diagnostics"
PACKAGE = ROOT / "zenc"
STAGES = ("syntax", "load", "scheme", "strategy", "averaging", "topology", "verification", "placement")
IN_OTHER_FILES = dict.fromkeys(("malformed-topology", "unsafe-xml", "unread-links", "links-not-in-file"), "xml")
NOT_IN_A_TEXT = {
    "unreadable-file", "unknown-scheme", "unknown-parameter", "unknown-topology", "bad-size", "wrong-topology-size",
    "memory-exceeded", "choice-of-schemes", "other-version", "no-strategy", "no-averaging", "wrong-kind",
    "wrong-argument",
    *IN_OTHER_FILES,
}  # fmt: skip
IDS = [id for id, (stage, _) in DIAGNOSTICS.items() if stage in STAGES and id not in NOT_IN_A_TEXT]


def diagnose(path: Path, id: str) -> tuple[Diagnostic, ...]:
    try:
        if DIAGNOSTICS[id][0] == "verification":
            return check(path).warnings
        if DIAGNOSTICS[id][0] == "placement":
            return check(path, topology=load_with_warnings(path)[0]).warnings
        if DIAGNOSTICS[id][0] == "topology":
            return load_with_warnings(path)[1]
        if DIAGNOSTICS[id][0] == "averaging":
            return open_text(path).check().warnings
        if DIAGNOSTICS[id][0] == "strategy":
            strategy, warnings = resolve_strategy(load_file(path))
            return (*warnings, *check_model(strategy, MODEL, (2,)))
        return resolve_any(load_file(path))[1]
    except ZencError as error:
        return error.diagnostics


@pytest.mark.parametrize("id", IDS)
def test_the_bad_text_earns_it_alone(id: str) -> None:
    path = TEXTS / f"{id}.bad.zen"
    expected = re.match(r"# expect: (\d+:\d+)(?: (.*))?\n", path.read_bytes().decode("utf-8", "replace"))
    assert expected, "the first line says where"
    (diagnostic,) = diagnose(path, id)
    assert diagnostic.id == id
    assert diagnostic.span is not None
    assert f"{diagnostic.span.line}:{diagnostic.span.column}" == expected[1]
    assert diagnostic.span.source.name == str(path)
    if expected[2]:
        assert diagnostic.message.replace(f"{TEXTS}/", "") == expected[2].replace(f"{id}.zen", path.name)
    assert (diagnostic.severity == "warning") == DIAGNOSTICS[id][1].endswith("(warning)")


@pytest.mark.parametrize("id", IDS)
def test_the_good_text_is_clean(id: str) -> None:
    assert diagnose(TEXTS / f"{id}.good.zen", id) == ()


@pytest.mark.parametrize("id", IN_OTHER_FILES)
def test_files_of_other_kinds(id: str) -> None:
    """The first line of a bad file has the expected place, and ``*.good.*`` files are clean."""
    bad, good = (TEXTS / f"{id}.{word}.{IN_OTHER_FILES[id]}" for word in ("bad", "good"))
    expected = re.search(r"expect: (\d+:\d+) ", bad.read_text())
    assert expected
    (diagnostic,) = diagnose(bad, id)
    assert diagnostic.id == id
    assert diagnostic.span is not None
    assert f"{diagnostic.span.line}:{diagnostic.span.column}" == expected[1]
    assert diagnose(good, id) == ()


def test_no_file_is_left_over() -> None:
    assert {path.name.split(".")[0] for path in TEXTS.glob("*.zen")} == set(IDS)
    others = {path.name.split(".")[0] for path in TEXTS.iterdir() if path.suffix not in (".zen", ".md")}
    assert others == set(IN_OTHER_FILES)


def test_each_is_documented_once() -> None:
    assert {id: diagnostics().count(f"\n### `{id}`\n") for id in DIAGNOSTICS} == dict.fromkeys(DIAGNOSTICS, 1)


def test_explanations_are_about_diagnostics_and_show_the_texts() -> None:
    """A section shows its texts where there are any, or an example; the few others have words only."""
    explained = "".join(path.read_text(encoding="utf-8") for path in TEXTS.glob("*.md"))
    assert sorted(re.findall(r"^### `(.*)`$", explained, re.MULTILINE)) == sorted(DIAGNOSTICS)
    without = {id for id in (*IDS, *IN_OTHER_FILES) if "```" not in diagnostic(id).text}
    assert without == {"not-text", "nesting", "rounded-again"}
    assert "<!-- texts -->" not in diagnostics() and "<!-- lines -->" not in diagnostics()


ID = re.compile(r"[a-z]+(-[a-z0-9]+)*")
HYPHENATED = re.compile(r"[a-z]+(-[a-z0-9]+)+")


def ids_raised(tree: ast.AST) -> Iterator[str]:
    """Yield the strings in places of ids: first in a diagnostic, report or tuple, anywhere in a helper."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in ("Diagnostic", "error", "warn", "_fail"):
                yield from strings(node.args[:1], ID)
            elif name in ("_ensure", "_at", "Kind"):
                yield from strings(node.args, HYPHENATED)
        elif isinstance(node, ast.Tuple):
            yield from strings(node.elts[:1], HYPHENATED)


def strings(nodes: list[ast.expr], pattern: re.Pattern[str]) -> list[str]:
    values = [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    return [value for value in values if pattern.fullmatch(value)]


def raised_by_file() -> dict[str, set[str]]:
    paths = [path for path in PACKAGE.rglob("*.py") if path.name != "diagnostics.py"]
    return {str(path): set(ids_raised(ast.parse(path.read_text(encoding="utf-8")))) for path in paths}


def test_every_id_that_is_raised_is_registered() -> None:
    unknown = {path: ids - set(DIAGNOSTICS) for path, ids in raised_by_file().items() if ids - set(DIAGNOSTICS)}
    assert unknown == {}


def test_every_id_that_is_registered_is_raised() -> None:
    assert set(DIAGNOSTICS) - set().union(*raised_by_file().values()) == set()
