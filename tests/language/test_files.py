"""Files and their imports, and the syntax trees of all shipped ones."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

from tests.support.refusals import refusals
from zenc.api import compile
from zenc.common.resources import directory
from zenc.errors import Diagnostic, SchemeError, SchemeSyntaxError, Source, Span, ZencError
from zenc.language.files import LIBRARIES, load_file, load_text
from zenc.language.parse import parse

ONE = "schedule one { push { } pull { } }\n"


def failure(path: Path) -> ZencError:
    with pytest.raises(ZencError) as caught:
        load_file(path)
    assert pickle.loads(pickle.dumps(caught.value)).diagnostics == caught.value.diagnostics
    return caught.value


def test_the_patterns_are_always_there() -> None:
    program = load_text("scheme a { }")
    assert program.files[0] is program.main
    assert [Path(file.source.name).name for file in program.files] == ["<text>", "patterns.zen"]


def test_the_patterns_may_be_named(tmp_path: Path) -> None:
    assert len(load_text('import "patterns.zen" scheme a { }').files) == 2


def test_imports_are_relative_to_the_importer_and_come_once(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "main.zen").write_text('import "deep/a.zen"\nimport "deep/b.zen"\n')
    (tmp_path / "deep/a.zen").write_text('import "b.zen"\n' + ONE)
    (tmp_path / "deep/b.zen").write_text(ONE.replace("one", "two"))
    program = load_file(tmp_path / "main.zen")
    assert [Path(file.source.name).name for file in program.files] == ["main.zen", "a.zen", "b.zen", "patterns.zen"]


def test_shipped_files_have_names_that_no_installation_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = directory("schemes")
    (tmp_path / "main.zen").write_text('import "balanced.zen"\n')
    names = [file.source.name for file in load_file(tmp_path / "main.zen").files]
    assert names == [str(tmp_path / "main.zen"), "schemes/balanced.zen", "schemes/patterns.zen"]
    monkeypatch.chdir(shipped)
    assert load_file(Path("balanced.zen")).main.source.name == "schemes/balanced.zen"


def test_an_error_in_a_shipped_file_names_the_file_that_can_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = directory("schemes") / "balanced.zen"
    place = load_file(real).main.schemes[0].name.span
    assert place is not None and place.name == f"schemes/balanced.zen:{place.line}:{place.column}"
    monkeypatch.chdir(tmp_path)
    shown = Diagnostic("syntax", "wrong", place)
    assert shown.render().startswith(f"{real}:{place.line}:") and shown.to_json()["place"] == {
        "file": str(real),
        "line": place.line,
        "column": place.column,
    }
    monkeypatch.chdir(real.parent)
    assert shown.render().startswith(f"balanced.zen:{place.line}:")


def test_a_cycle_is_told_where_it_closes(tmp_path: Path) -> None:
    (tmp_path / "a.zen").write_text('import "b.zen"\n')
    (tmp_path / "b.zen").write_text('\nimport "./a.zen"\n')
    (diagnostic,) = failure(tmp_path / "a.zen").diagnostics
    assert diagnostic.id == "import-cycle"
    assert "a.zen -> b.zen -> a.zen" in diagnostic.message
    assert diagnostic.span is not None
    assert (Path(diagnostic.span.source.name).name, diagnostic.span.line) == ("b.zen", 2)


def test_imports_nest_within_reason(tmp_path: Path) -> None:
    for n in range(500):
        (tmp_path / f"{n}.zen").write_text(f'import "{n + 1}.zen"\n')
    (tmp_path / "500.zen").write_text(ONE)
    assert len(load_file(tmp_path / "410.zen").files) == 92
    (diagnostic,) = failure(tmp_path / "0.zen").diagnostics
    assert diagnostic.id == "nesting" and diagnostic.span is not None
    assert Path(diagnostic.span.source.name).name == "100.zen"


def test_missing_imports_are_all_told(tmp_path: Path) -> None:
    (tmp_path / "a.zen").write_text('import "b.zen"\nimport "c.zen"\n')
    error = failure(tmp_path / "a.zen")
    assert [(d.id, d.span.line) for d in error.diagnostics if d.span] == [("missing-import", 1), ("missing-import", 2)]


def test_syntax_errors_of_all_files_come_together(tmp_path: Path) -> None:
    (tmp_path / "a.zen").write_text('import "b.zen"\nimport "c.zen"\nimport "missing.zen"')
    (tmp_path / "b.zen").write_text("x")
    (tmp_path / "c.zen").write_text("y")
    error = failure(tmp_path / "a.zen")
    assert isinstance(error, SchemeSyntaxError)
    assert [d.id for d in error.diagnostics] == ["syntax", "syntax"]


@pytest.mark.parametrize(
    "data", [b"\xff\xfe\x00", b"scheme a\x00 { }", b"\x7fELF\x02\x01", "scheme é".encode("latin-1")]
)
def test_binary_files(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.zen").write_bytes(data)
    error = failure(tmp_path / "a.zen")
    assert isinstance(error, SchemeSyntaxError)
    assert error.diagnostics[0].id in ("not-text", "syntax")


def test_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    (tmp_path / "a.zen").write_bytes(b'\xef\xbb\xbfscheme a {\r\n  "x\ty"\r\n}\r\n')
    assert load_file(tmp_path / "a.zen").main.schemes[0].doc == "x y"


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.zen", tmp_path, tmp_path / "nul\0.zen", tmp_path / ("x" * 5000)):
        error = failure(path)
        assert isinstance(error, SchemeError)
        assert [d.id for d in error.diagnostics] == ["unreadable-file"]


def test_strange_import_paths(tmp_path: Path) -> None:
    for path in ("", ".", "..", "x" * 5000, "/", "\N{SNOWMAN}"):
        (tmp_path / "a.zen").write_text(f'import "{path}"', encoding="utf-8")
        assert [d.id for d in failure(tmp_path / "a.zen").diagnostics] == ["missing-import"]


@pytest.mark.parametrize("name", ["balnced", "schemes/balnced.zen"])
def test_the_name_of_no_scheme_is_guessed(name: str) -> None:
    (found,) = refusals(SchemeError, compile, name)
    assert found.message == f"'{name}' is neither a file nor a scheme that comes with zenc"
    assert found.help == "did you mean 'balanced'?"
    with pytest.raises(SchemeError, match="`zenc list` shows those"):
        compile("xyzzy")
    with pytest.raises(SchemeError, match="No such file"):
        compile("./balnced.zen")


SHIPPED = sorted(path for path in directory("schemes").rglob("*.zen") if path.name not in LIBRARIES)


def lines(node: object, label: str = "", indent: int = 0) -> Iterator[str]:
    """Yield a line a node: its class and plain fields; then its children, each after the name of its field."""
    head = "  " * indent + (f"{label}: " if label else "")
    if isinstance(node, tuple):
        yield f"{head}[{len(node)}]"
        for item in node:
            yield from lines(item, indent=indent + 1)
    elif is_dataclass(node):
        values = {f.name: getattr(node, f.name) for f in fields(node) if f.compare}
        values = {name: value for name, value in values.items() if not isinstance(value, Source | Span)}
        plain = {n: v for n, v in values.items() if not is_dataclass(v) and not (isinstance(v, tuple) and v)}
        shown = "".join(f" {name}={value!r}" for name, value in plain.items() if value not in (None, ()))
        yield f"{head}{type(node).__name__}{shown}"
        for name, value in values.items():
            if name not in plain:
                yield from lines(value, name, indent + 1)
    else:
        yield f"{head}{node!r}"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_tree(path: Path, assert_golden: Callable[[str, str], None]) -> None:
    file = parse(Source(path.name, path.read_text(encoding="utf-8")))
    assert_golden(f"{path.stem}.tree.txt", "\n".join(lines(file)))
