"""Rules of docstrings: a verb for a function and a noun for data, shapes of arrays, tables and examples as code."""

import ast
import re
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

import zenc
from tests.support.sources import tree_of
from tests.test_layers import MODULES, PACKAGE

ASKING = "What|Who|Whose|Which|When|Where|Why|How|Whether"
DANGLING = re.compile(
    rf"(?:{ASKING}|Of|For|From|With|By|To|On|At|As|If|And|Or|So|That|Those|These|This|It|Its|Their|All(?!-)|One|Some"
    r"|Same|The same|Another|Others?|Here|There|Also|Nor|Such)\b"
)
"""Beginnings of no docstring: they can't be understood without the docstrings around them. ``All-reduces`` may."""
HEADLESS = re.compile(rf"(?:From|Some|All|One call|The ways|{ASKING})\b")
"""Beginnings of no header of the templates."""
STANDING = re.compile(r"(?:All|One|On|Whether|This (?:lane|rank|thread)'s)\b")
"""Beginnings that comments of C++ may have all the same: ``Whether ...`` says what a predicate returns."""
VAGUE = re.compile(r"\b(?:is none|so many|what is)\b")
"""Phrases of no docstring, but for the help of commands: ``zenc``'s, and module docstrings that programs print."""
VERBS = """
Accumulate Act Add Allocate Announce Apply Ask Attach Average Begin Bind Bring Build Call Carry Change Check Choose
Close Compare Compile Complete Contribute Copy Count Cut Deal Declare Decode Define Delete Deliver Describe Destroy
Detach Diagnose Disturb Divide Do Draw Drop Encode End Enter Evaluate Exchange Expand Explain Fill Find Fingerprint Fit
Follow Forget Free Get Give Go Guess Have Hold Join Keep Kill Launch Lay Learn Leave Let Link List Load Log Lower Make
Mark Match Measure Merge Mix Move Multiply Name Note Number Observe Open Pack Parse Place Plant Play Post Predict
Prepare Print Prove Publish Push Put Quantise Queue Raise Read Receive Record Recover Reduce Refuse Register Release
Remove Rename Render Replace Replay Report Reset Resolve Return Run Save Say Scale Search Select Send Serve Set Share
Show Shut Simulate Sketch Sort Split Start Sum Swap Switch Take Tell Time Train Try Turn Undo Unload Unpack Update
Upload Use Verify Wait Warn Write Yield
"""
"""First words of functions' docstrings: a new one belongs here if it is a verb in the imperative."""

TEMPLATES = PACKAGE.parent / "templates"
KINDS = ("h", "cpp", "j2")

ARRAY = re.compile(r"\b(?:NDArray|ndarray|ArrayLike|Tensor)\b")
SHAPE = re.compile(r"\[[^\[\]`'\"]+\]|\bshapes?\b|\bdimensions?\b")
"""``[ranks, parts]``, or in words: of the shape of another one, or of any shape."""

Node = ast.Module | ast.ClassDef | ast.FunctionDef


@dataclass(frozen=True)
class Documented:
    """A module, class or function with a docstring; ``owner`` is the docstring of a method's class."""

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
    trees = {name: tree_of(path) for name, path in sorted(MODULES.items())}
    return tuple(found for name, tree in trees.items() for found in documented(name, tree))


def aliases() -> set[str]:
    """Return the names that modules give to types of arrays: ``Ints``, ``Mask``."""
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
    """Return the paragraphs of ``doc`` that are indented."""
    paragraphs = re.split(r"\n[ ]*\n", doc)
    return [textwrap.dedent(text) for text in paragraphs if all(line.startswith("    ") for line in text.split("\n"))]


CODE = re.compile(r"\bzenc\.\w+\(|^with |^import |^\w+ = \w+\.\w+\(", re.MULTILINE)


def test_public_modules_have_a_docstring() -> None:
    modules = [each for each in everything() if each.is_public and isinstance(each.node, ast.Module)]
    assert [each.name for each in modules if not each.doc] == []


def statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield all statements of ``body``, those within others among them; ``ast.walk`` goes through expressions too."""
    for statement in body:
        yield statement
        for inner in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, inner, ()))


def constants(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield lines and texts of the strings after assignments, wherever these stand."""
    for before, after in pairwise(statements(tree.body)):
        value = after.value if isinstance(after, ast.Expr) else None
        told = value.value if isinstance(value, ast.Constant) else None
        if isinstance(before, ast.Assign | ast.AnnAssign) and isinstance(told, str):
            yield after.lineno, told


def told(tree: ast.Module) -> Iterator[tuple[int, str, ast.AST | None]]:
    """Yield all docstrings and strings after assignments: line, text, and the node, which is None for the latter."""
    yield from ((line, text, None) for line, text in constants(tree))
    kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    for node in (tree, *(each for each in statements(tree.body) if isinstance(each, kinds))):
        if doc := ast.get_docstring(node):
            yield getattr(node, "lineno", 1), doc, node


def is_function(node: ast.AST | None) -> bool:
    """Return whether ``node`` needs a verb: not data (properties, fixtures), a text for users (builders) or a test."""
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.name.startswith("test_"):
        return False
    return not any(re.search(r"property|fixture|^_builder", ast.unparse(each)) for each in node.decorator_list)


@pytest.mark.parametrize("folder", ["zenc", "benchmarks", "tests"])
def test_docstrings_begin_with_a_verb_or_a_noun(folder: str) -> None:
    count, dangling, unverbed, vague, verbs = 0, [], [], [], set(VERBS.split())
    for path in sorted((PACKAGE.parent / folder).rglob("*.py")):
        for line, text, node in told(tree_of(path)):
            is_help = "cli" in path.parts or (isinstance(node, ast.Module) and "__doc__" in path.read_text("utf-8"))
            count += 1
            what = f"{path}:{line}: {text[:60]}"
            dangling += [what] if DANGLING.match(text) else []
            unverbed += [what] if is_function(node) and text.split(maxsplit=1)[0].strip(".,:;") not in verbs else []
            vague += [what] if VAGUE.search(text) and not is_help else []
    assert count > 500
    assert dangling == []
    assert unverbed == []
    assert vague == []


def test_help_of_options_can_be_understood_alone() -> None:
    calls = [
        node
        for path in (PACKAGE / "cli").rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call)
    ]
    texts = [ast.unparse(word.value)[1:] for call in calls for word in call.keywords if word.arg == "help"]
    assert len(texts) > 60
    assert [text for text in texts if DANGLING.match(text) and not re.match("For a|Where to write", text)] == []


def comments(path: Path) -> Iterator[str]:
    """Yield the first line of each comment in a file of C++, or in a template of one."""
    lines = [line.strip() for line in path.read_text(encoding="utf-8").split("\n")]
    for before, line in pairwise(["", *lines]):
        if line.startswith("// ") and not before.startswith("//"):
            yield line.removeprefix("// ")


def test_comments_of_c_plus_plus_can_be_understood_alone() -> None:
    folders = [PACKAGE.parent / folder for folder in ("templates", "tests", "benchmarks")]
    found = {path: [*comments(path)] for folder in folders for kind in KINDS for path in folder.rglob(f"*.{kind}")}
    lines = [line for each in found.values() for line in each]
    assert len(lines) > 1000
    assert [line for line in lines if DANGLING.match(line) and not STANDING.match(line)] == []
    headers = [path for path in found if path.suffix == ".h" and TEMPLATES in path.parents]
    assert [path for path in headers if not path.read_text(encoding="utf-8").startswith(f"// {found[path][0]}")] == []
    assert [path for path in headers if HEADLESS.match(found[path][0])] == []


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
    examples = [(each.name, block) for each in everything() for block in filter(CODE.search, blocks(each.doc))]
    assert len(examples) > 10
    for name, block in examples:
        assert compile(block, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT).co_code


def test_what_examples_call_is_there() -> None:
    called = {name for each in everything() for name in re.findall(r"(?<![\w.])zenc\.(\w+)\(", each.doc)}
    assert {"attach", "load"} <= called
    assert sorted(called - set(dir(zenc))) == []
