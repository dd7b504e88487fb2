"""Docstrings say what a thing is: a noun first, shapes of arrays, tables and examples as code."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import pytest

import zenc
from tests.test_layers import MODULES, PACKAGE

RIDDLE = re.compile(r"(?:What|Who|Whose|Which|When|Where|Why|How|Whether|From|Some|All|One call|The ways)\b")
"""Beginnings that leave out the noun."""
QUESTION = re.compile(r"(?:What|Who|Whose|Which|When|Where|Why|How|Whether)\b")
"""Those of them that nothing begins with, private or not, in the package, the benchmarks and the tests."""

TEMPLATES = PACKAGE.parent / "templates"

ARRAY = re.compile(r"\b(?:NDArray|ndarray|ArrayLike|Tensor)\b")
SHAPE = re.compile(r"\[[^\[\]`'\"]+\]|\bshapes?\b|\bdimensions?\b")
"""``[ranks, parts]``, or in words: of the shape of another one, or of any shape."""

Node = ast.Module | ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Documented:
    """A module, class or function with a docstring; ``owner`` is the class that a method is of."""

    name: str
    node: Node
    doc: str
    owner: str = ""

    @property
    def is_public(self) -> bool:
        return not any(part.startswith("_") for part in self.name.split(".")[1:])


def documented(name: str, node: Node, owner: str = "") -> Iterator[Documented]:
    doc = ast.get_docstring(node) or ""
    yield Documented(name, node, doc, owner)
    for inner in () if isinstance(node, ast.FunctionDef) else node.body:
        if isinstance(inner, ast.ClassDef | ast.FunctionDef):
            yield from documented(f"{name}.{inner.name}", inner, doc if isinstance(node, ast.ClassDef) else "")


@cache
def everything() -> tuple[Documented, ...]:
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in sorted(MODULES.items())}
    return tuple(found for name, tree in trees.items() for found in documented(name, tree))


def aliases() -> set[str]:
    """Names that modules give to types of arrays: ``Ints``, ``Mask``."""
    return {
        node.target.id
        for module in everything()
        if isinstance(module.node, ast.Module)
        for node in module.node.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value
        if "TypeAlias" in ast.unparse(node.annotation) and "NDArray" in ast.unparse(node.value)
    }


def annotations(node: ast.FunctionDef) -> str:
    arguments = (*node.args.args, *node.args.kwonlyargs)
    found = [*(argument.annotation for argument in arguments), node.returns]
    return " ".join(ast.unparse(annotation) for annotation in found if annotation)


def blocks(doc: str) -> list[str]:
    """The paragraphs of ``doc`` that are indented."""
    paragraphs = re.split(r"\n[ ]*\n", doc)
    return [textwrap.dedent(text) for text in paragraphs if all(line.startswith("    ") for line in text.split("\n"))]


def is_code(block: str) -> bool:
    return bool(re.search(r"\bzenc\.\w+\(|^with |^import |^\w+ = \w+\.\w+\(", block, re.MULTILINE))


def test_modules_and_classes_begin_with_a_noun() -> None:
    of_interest = [each for each in everything() if each.is_public and not isinstance(each.node, ast.FunctionDef)]
    wrong = [f"{each.name}: {each.doc[:60]}" for each in of_interest if RIDDLE.match(each.doc)]
    assert wrong == []
    assert [each.name for each in of_interest if isinstance(each.node, ast.Module) and not each.doc] == []


def constants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Lines and texts of the strings after assignments, wherever these stand."""
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, Node)]
    for body in bodies:
        for before, after in pairwise(body):
            value = after.value if isinstance(after, ast.Expr) else None
            told = value.value if isinstance(value, ast.Constant) else None
            if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(told, str):
                yield after.lineno, told


@pytest.mark.parametrize("folder", ["zenc", "benchmarks", "tests"])
def test_no_module_class_or_constant_begins_with_a_question(folder: str) -> None:
    found, wrong = 0, []
    for path in sorted((PACKAGE.parent / folder).rglob("*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        nodes = [tree, *(node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))]
        told = [(getattr(node, "lineno", 1), ast.get_docstring(node) or "") for node in nodes]
        told += constants(tree)
        found += len(told)
        wrong += [f"{path}:{line}: {text[:60]}" for line, text in told if QUESTION.match(text)]
    assert found > 100
    assert wrong == []


def test_headers_begin_with_a_noun() -> None:
    first = {path: path.read_text(encoding="utf-8").split("\n")[0] for path in TEMPLATES.rglob("*.h")}
    assert len(first) > 30
    assert [f"{path}: {line}" for path, line in first.items() if RIDDLE.match(line.removeprefix("// "))] == []
    assert [str(path) for path, line in first.items() if not line.startswith("// ")] == []


def test_public_functions_over_arrays_state_a_shape() -> None:
    array = re.compile("|".join([ARRAY.pattern, *(rf"\b{alias}\b" for alias in sorted(aliases()))]))
    over_arrays = [
        each
        for each in everything()
        if isinstance(each.node, ast.FunctionDef) and each.is_public and array.search(annotations(each.node))
        if each.doc  # that it is there ruff sees to
    ]
    assert len(over_arrays) > 80
    assert [each.name for each in over_arrays if not SHAPE.search(each.doc) and not SHAPE.search(each.owner)] == []


def test_tables_are_indented() -> None:
    """Columns between paragraphs, which Markdown would run together; ruff format takes the indent of a table alone."""
    mixed = [each for each in everything() if each.doc.count("\n\n") > 1]
    lines = [(each.name, line) for each in mixed for line in each.doc.split("\n")]
    assert [f"{name}: {line}" for name, line in lines if re.match(r"(?! {4}).*\S {2,}\S", line)] == []


def test_examples_are_python() -> None:
    examples = [(each.name, block) for each in everything() for block in filter(is_code, blocks(each.doc))]
    assert len(examples) > 10
    for name, block in examples:
        assert compile(block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).co_code


def test_what_examples_call_is_there() -> None:
    called = {name for each in everything() for name in re.findall(r"(?<![\w.])zenc\.(\w+)\(", each.doc)}
    assert {"attach", "load"} <= called
    assert sorted(called - set(dir(zenc))) == []
