"""Costs of hostile files of a megabyte, and a package that never runs, unpickles or evaluates what it has read."""

import ast
import json
from collections.abc import Iterator

import pytest

from tests.support.sources import dotted, tree_of
from tests.test_layers import MODULES
from tests.untrusted.costs import KEPT_AT, PAGE, cost_of, with_table
from tests.untrusted.megabytes import MEGABYTE, TRICKS
from zenc.common.diagnostics import DIAGNOSTICS

KEPT = json.loads(KEPT_AT.read_text("utf-8"))
SECOND, GIGABYTE = 1.0, 1e9
PATIENCE = 5.0
"""Factor by which a busy machine may be slower. Without a limit reading takes minutes, or all memory."""
SAMPLE = ("places of a plan", "an archive of zeros")


@pytest.mark.parametrize(
    "trick", [pytest.param(trick, marks=[] if trick in SAMPLE else pytest.mark.slow) for trick in TRICKS]
)
def test_a_megabyte_costs_a_second_and_a_gigabyte_at_most(trick: str) -> None:
    cost = cost_of(trick)
    assert cost.bytes <= 1.1 * MEGABYTE and cost.outcome == KEPT[trick]["outcome"]
    assert cost.seconds < PATIENCE * SECOND and cost.memory < GIGABYTE


def test_the_table_is_what_the_command_wrote() -> None:
    assert with_table(PAGE.read_text("utf-8"), KEPT) == PAGE.read_text("utf-8")


def test_every_trick_of_the_table_was_within_the_limits() -> None:
    assert list(KEPT) == list(TRICKS)
    assert {trick: of for trick, of in KEPT.items() if of["seconds"] > SECOND or of["memory"] > GIGABYTE} == {}
    assert {id for of in KEPT.values() for id in of["outcome"].split(", ")} <= {"read", *DIAGNOSTICS}


FORBIDDEN_MODULES = {
    "pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "code", "codeop", "runpy",
    "yaml", "xml.etree.ElementTree", "xml.dom", "xml.sax", "multiprocessing",
}  # fmt: skip
"""Modules that run or rebuild objects from data, or expand entities."""
FORBIDDEN_CALLS = {"eval", "exec", "__import__", "os.system", "os.popen", "torch.hub.load", "torch.jit.load"}
"""Functions that run a text, or a file's content."""
PICKLING = {
    "all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list", "send_object_list",
    "recv_object_list",
}  # fmt: skip
"""Functions that unpickle what a peer has sent."""
NEEDED = {
    "torch.load": ("weights_only", True),
    "np.load": ("allow_pickle", False),
    "numpy.load": ("allow_pickle", False),
}
"""Arguments without which a call unpickles anything."""
BY_TABLE = {"zenc", "zenc.cli"}
"""Modules that import by a table of names of their own, at first use."""


def dangers(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in FORBIDDEN_MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in FORBIDDEN_MODULES:
            yield str(node.module)
        elif isinstance(node, ast.Call):
            yield from _of_call(node)


def _of_call(node: ast.Call) -> Iterator[str]:
    name = dotted(node.func)
    given = {word.arg: getattr(word.value, "value", None) for word in node.keywords}
    if name in FORBIDDEN_CALLS or name.rpartition(".")[2] in PICKLING:
        yield name
    if name in NEEDED and given.get(NEEDED[name][0]) is not NEEDED[name][1]:
        yield f"{name} without {NEEDED[name][0]}={NEEDED[name][1]}"
    if given.get("shell"):
        yield f"{name} with a shell"
    if name.endswith("import_module") and not (node.args and isinstance(node.args[0], ast.Constant)):
        yield f"{name} of a name that is worked out"


@pytest.mark.parametrize(
    "text",
    ["import pickle", "from marshal import loads", "eval(text)", "torch.load(path)",
     "torch.load(p, weights_only=False)", "np.load(p, allow_pickle=True)", "dist.all_gather_object(found, own)",
     "subprocess.run(line, shell=True)",
     "importlib.import_module(name)", "import xml.etree.ElementTree"],
)  # fmt: skip
def test_dangers_are_seen(text: str) -> None:
    assert list(dangers(ast.parse(text)))


def test_nothing_is_unpickled_or_evaluated() -> None:
    found = {name: list(dangers(tree_of(path))) for name, path in MODULES.items()}
    assert len(found) > 300
    assert {name: what for name, what in found.items() if what and name not in BY_TABLE} == {}
    assert {what for name in BY_TABLE for what in found[name]} == {"import_module of a name that is worked out"}
