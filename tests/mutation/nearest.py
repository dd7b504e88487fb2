"""Test files by their distance from a file of the core: the first ones are most likely to notice a change of it.

The distance of a test is its number of imports up to the file, as in ``tests -> tests.support -> zenc``; imports within
functions count. Of tests that are as far, those in a folder of the same name, or with the file's stem in their name,
come first. C++ has no such graph: there the distance follows from words that the file and the test's text share.
"""

import ast
import re
from functools import cache
from pathlib import Path

import networkx as nx

FAR = 99
WHOLE = ("tests/runtime/test_golden_sums.py", "tests/runtime/test_bytes.py")
"""Tests of the whole core at once: sums and bytes of all schemes, and of any gradients."""
WITHOUT = ("tests/gpu", "tests/mutation", "tests/packaging", "tests/docs", "tests/examples", "tests/test_layers.py")
"""Beginnings of the paths of tests that try something else than the core, or need a checkout."""


FIRST = 5
"""The number of nearest tests that come before those of ``WHOLE``."""
FOLDERS = ("zenc", "tests", "benchmarks")


def nearest(root: Path, path: str) -> tuple[list[str], list[str]]:
    """Return the test files that can notice a change of ``path``, nearest first: those to begin with, and the rest."""
    tests = [str(test.relative_to(root)) for test in sorted((root / "tests").rglob("test_*.py"))]
    tests = [test for test in tests if not test.startswith(WITHOUT)]
    far = _by_words(root, path, tests) if path.startswith("templates/") else _by_imports(root, path, tests)
    folders, stem = set(Path(path).parts), Path(path).stem.rstrip("s")

    def rank(test: str) -> tuple[float, str]:
        named = stem in Path(test).stem
        beside = len(folders & set(Path(test).parts))
        return far[test] - 2.0 * named - 0.5 * beside, test

    ranked = sorted((test for test in tests if far[test] < FAR), key=rank)
    whole = WHOLE if path.startswith(("zenc/runtime/", "templates/")) else WHOLE[:1]
    first = [*[test for test in ranked if test not in whole][:FIRST], *whole]
    return first, [test for test in ranked if test not in first]


def _by_imports(root: Path, path: str, tests: list[str]) -> dict[str, int]:
    """Return the least number of imports from each of ``tests`` to ``path``; ``FAR`` if there is no way."""
    graph = users(root)
    far = nx.single_source_shortest_path_length(graph, path) if path in graph else {}
    return {test: far.get(test, FAR) for test in tests}


@cache
def users(root: Path) -> nx.DiGraph:
    """Return a graph with a way from each file to those that import it; all relative to ``root``."""
    files = (str(file.relative_to(root)) for folder in FOLDERS for file in (root / folder).rglob("*.py"))
    return nx.DiGraph((used, name) for name in files for used in imports(root, name))


def imports(root: Path, path: str) -> frozenset[str]:
    """Return the files below ``root`` that ``path`` imports, or names in a string as ``module:function``."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((root / path).read_bytes())):
        if isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and "." in node.value:
            names |= {node.value.partition(":")[0]}
    ways = [name.replace(".", "/") for name in names if name.partition(".")[0] in FOLDERS]
    files = {f"{way}{end}" for way in ways for end in (".py", "/__init__.py")}
    return frozenset(file for file in files if (root / file).is_file()) - {path}


def _by_words(root: Path, path: str, tests: list[str]) -> dict[str, int]:
    """Return a distance for each of ``tests``, by its text.

    It is 0 for tests that name the file or a function of it, 2 for those that run its target, 4 for those of the run
    time, and ``FAR`` for all others.
    """
    text = (root / path).read_text("utf-8")
    words = {Path(path).name, *re.findall(r"\bzenc_\w+", text)} - {"zenc_cpu", "zenc_cuda", "zenc_host"}
    target = "cuda" if "/cuda/" in path else "cpu"
    found = {}
    for test in tests:
        said = (root / test).read_text("utf-8")
        own = any(word in said for word in words)
        runs = f"targets/{target}" in test or (target == "cuda" and "emulator" in test)
        shared = "targets/" in test and "shared" in path
        found[test] = (
            0 if own else 2 if runs or shared else 4 if "tests/runtime" in test or "tests/torch" in test else FAR
        )
    return found
