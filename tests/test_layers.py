"""The direction of imports: a module imports only from its own layer and from those before it; data imports no pass."""

import ast
import re
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from tests.support.sources import nodes_of, tree_of

PACKAGE = Path(__file__).resolve().parents[1] / "zenc"

LAYERS = (
    {"zenc.errors", "zenc._version"},
    {"zenc.common"},
    {"zenc.language"},
    {"zenc.scheme"},
    {"zenc.topology"},
    {"zenc.plan"},
    {"zenc.wire"},
    {"zenc.verify"},
    {"zenc.referee"},
    {"zenc.rank_ir"},
    {"zenc.gradients"},
    {"zenc.analysis"},
    {"zenc.simulator"},
    {"zenc.synthesize"},
    {"zenc.select"},
    {"zenc.draw"},
    {"zenc.codegen"},
    {"zenc.runtime"},
    {"zenc.calibrate"},
    {"zenc.pipeline"},
    {"zenc.api", "zenc.compiler"},
    {"zenc.strategy"},
    {"zenc.averaging"},
    {"zenc.kinds"},
    {"zenc.forecast"},
    {"zenc.assist", "zenc.report"},
    {"zenc.torch"},
    {"zenc.tables"},
    {"zenc.editor"},
    {"zenc.lab"},
    {"zenc.cli", "zenc.__main__"},
)
"""Layers from first to last. Only ``zenc`` itself stands outside, which exports names of all layers lazily."""

DATA = (
    "zenc.errors", "zenc.common.diagnostics", "zenc.language.terms", "zenc.language.topology_syntax",
    "zenc.language.syntax", "zenc.language.schedule", "zenc.scheme.compression", "zenc.scheme.model",
    "zenc.strategy.model", "zenc.averaging.model", "zenc.wire.constants", "zenc.wire.structs", "zenc.topology.model",
    "zenc.plan.ir", "zenc.referee.model", "zenc.rank_ir.ir",
)  # fmt: skip
"""Modules of what a stage passes on; everything else in their folders is a pass over it."""

CONVENIENCES = {"zenc.plan.ir": {"zenc.plan.to_json"}, "zenc.topology.model": {"zenc.topology.all_pairs"}}
"""Passes that data call, and import late: ``Plan.to_json``, and ``Topology.routes``. They do not know these data."""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}
EVERY = MODULES | {module_name(path): path for path in (PACKAGE.parent / "benchmarks").rglob("*.py")}


@cache
def imported(path: Path, late: bool) -> set[str]:
    """Return the modules that ``path`` imports; with ``late`` also those inside functions and for annotations."""
    nodes = nodes_of(path) if late else tree_of(path).body
    found: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names} | {node.module}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return {name for name in found if name in EVERY and name != "zenc"}


def layer_of(module: str) -> int:
    (found,) = [
        i for i, layer in enumerate(LAYERS) for name in layer if module == name or module.startswith(name + ".")
    ]
    return found


def test_imports_are_absolute() -> None:
    for path in MODULES.values():
        for node in nodes_of(path):
            assert not (isinstance(node, ast.ImportFrom) and node.level), f"{path} imports relatively"


def test_imports_lead_to_earlier_layers() -> None:
    layers = {module: layer_of(module) for module in MODULES if module != "zenc"}
    for module, layer in layers.items():
        for other in imported(MODULES[module], late=True):
            assert layers[other] <= layer, f"{module} imports {other}, which comes after it"


@pytest.mark.parametrize("module", DATA)
def test_data_imports_no_pass(module: str) -> None:
    assert imported(MODULES[module], late=False) <= set(DATA)
    assert imported(MODULES[module], late=True) - set(DATA) == CONVENIENCES.get(module, set())


def test_the_configuration_names_modules_that_there_are() -> None:
    text = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    named = re.findall(r'"(zenc(?:\.\w+)+)', text)
    assert len(named) > 3 and set(named) <= set(MODULES), set(named) - set(MODULES)


OF_OTHERS = {
    "_coalesced_", "_indices", "_values", "_world", "_get_backend", "_device_types", "_comm_hooks", "_current_level",
    "_replace", "_C", "_cuda_getDevice", "_cuda_getCurrentRawStream", "_set_default_timeout",
}  # fmt: skip
"""Private names of torch and of named tuples without a public counterpart."""


def test_nobody_reaches_into_another_object() -> None:
    """A private name of an object is used by its own methods, or at least in the module that defines it."""
    for module, path in MODULES.items():
        nodes = nodes_of(path)
        used = [node for node in nodes if isinstance(node, ast.Attribute) and _is_private(node.attr)]
        own = {node.attr for node in used if _is_own(node.value)} | OF_OTHERS
        own |= {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
        others = [ast.unparse(node) for node in used if not _is_own(node.value) and node.attr not in own]
        assert others == [], module


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _is_own(value: ast.expr) -> bool:
    """Return whether an expression is ``self``, ``cls`` or ``super()``."""
    named = value.func if isinstance(value, ast.Call) and not value.args else value
    return isinstance(named, ast.Name) and named.id in ("self", "cls", "super")


def test_there_is_no_circle() -> None:
    """Late imports count, and those for annotations alone."""
    graph = nx.DiGraph((name, other) for name, path in EVERY.items() for other in imported(path, late=True) - {name})
    assert [sorted(circle) for circle in nx.strongly_connected_components(graph) if len(circle) > 1] == []
