"""Fixtures that every test may use.

``assert_golden("balanced.tree.txt", text)`` compares ``text`` with the file of that name in ``tests/golden``.
``pytest --update-golden`` writes the files anew: read the diff before you commit it.

``assert_plot("images/words.svg", svg)`` does so for a plot in ``docs``: what it shows counts, not each byte.

``nvrtc`` compiles GPU kernels, without a GPU. It comes with the extra ``dev``; where it can't be had, the tests that
ask for it are skipped if ZENC_WITHOUT_NVRTC is set, and fail otherwise.

``nine``, ``four`` and ``two`` are pools of real processes in a gloo world (see ``tests.support.ranks``).

Tests marked ``gpu`` run only where ``-m`` names the mark; without a GPU they are skipped then.
"""

import difflib
import gc
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings

from tests.gpu.machine import gpu
from tests.support.fuzz import SEED_VARIABLE, register_profiles, seed_of_run
from tests.support.pictures import differences, meaning
from tests.support.ranks import Ranks
from zenc.codegen.build.nvrtc import Nvrtc, device_compiler
from zenc.errors import BuildError

TESTS = Path(__file__).parent
GOLDEN = TESTS / "golden"
NUMBERS: dict[str, Iterator[int]] = {}
"""Numbers of the sets of arguments of each test, in the order of their collection."""
THINNED = frozenset(
    ("analysis", "benchmarks", "cli", "codegen", "emulator", "faults", "gpu", "plan", "rank_ir", "runtime", "simulator",
     "tables", "targets", "topology", "torch", "verify", "wire")
)  # fmt: skip
"""Folders whose tests compile, start processes or sum for long."""

LONGEST = (
    "targets/cuda/test_compiled.py", "emulator/test_whole_calls.py", "docs/test_snippets.py", "tables/test_sharded.py",
    "runtime/test_gpu.py", "torch/test_feedback.py", "docs/test_guides.py", "verify/test_mutations.py",
    "topology/test_importers_fuzz.py", "torch/test_options.py", "runtime/test_gloo.py", "test_docstrings.py",
    "runtime/test_halves.py", "torch/test_strategies.py", "simulator/test_advice.py", "cli/test_verbs.py",
    "select/test_search.py", "benchmarks/test_lab.py", "runtime/test_shared_memory.py", "untrusted/test_fuzz.py",
    "torch/test_rebuild.py", "benchmarks/test_convergence.py", "untrusted/test_costs.py", "soak/test_soak.py",
    "topology/test_language.py", "codegen/test_host_build.py", "faults/test_seeds.py", "untrusted/test_files.py",
    "runtime/test_hierarchical_hash.py", "torch/test_outer.py", "analysis/test_lossy_bytes.py",
    "synthesize/test_synthesis.py",
)  # fmt: skip
"""Files that take longest, some of computing and some of waiting: begun first, so that none is left for the end."""

register_profiles()
seed_of_run()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the files in tests/golden anew")


def pytest_configure(config: pytest.Config) -> None:
    """Try fewer inputs of each property where slow tests are left out; before any test is imported."""
    if "not slow" in config.option.markexpr and not config.getoption("--hypothesis-profile"):
        settings.load_profile("quick")


def pytest_report_header() -> str:
    """Report the seed by which inputs are drawn, the same in all processes that run tests side by side."""
    return f"fuzz: inputs of seed {seed_of_run()}, again by {SEED_VARIABLE}={seed_of_run()}"


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark as slow the sets of arguments that quick runs leave out, but never the first.

    They try each n-th of a test that is marked ``one_in(n)``, and in ``THINNED`` about an eighth, by a checksum.
    """
    sample = item.get_closest_marker("one_in")
    number = next(NUMBERS.setdefault(item.nodeid.partition("[")[0], count()))
    if sample is not None:
        left_out = number % sample.args[0]
    else:
        left_out = number and item.path.relative_to(TESTS).parts[0] in THINNED and crc32(item.nodeid.encode()) % 8
    if left_out:
        item.add_marker(pytest.mark.slow)


def pytest_collection_finish() -> None:
    """Leave the thousands of tests and modules, which stay, out of later collections of garbage."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup() -> None:
    """Draw the same numbers in each run of a test that asks torch for any without a generator of its own."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if "gpu" not in config.option.markexpr:
        config.hook.pytest_deselected(items=marked)
        items[:] = [item for item in items if item not in set(marked)]
    elif marked and (missing := why_no_gpu()):
        for item in marked:
            item.add_marker(pytest.mark.skip(reason=missing))
    places = {TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def why_no_gpu() -> str:
    """Return in a line why there is no GPU; "" where there is one."""
    try:
        gpu()
    except BuildError as error:
        return f"there is no GPU: {error.diagnostics[0].message}"
    return ""


@pytest.fixture
def assert_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that fails, with a diff, unless a text equals the golden file of the given name."""
    update = bool(request.config.getoption("--update-golden"))

    def check(name: str, text: str) -> None:
        path, text = GOLDEN / name, text.rstrip("\n") + "\n"
        known = path.read_text(encoding="utf-8") if path.exists() else None
        if known == text:
            return
        if update:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            return
        if known is None:
            pytest.fail(f"there is no tests/golden/{name}: run pytest --update-golden, and read what it wrote")
        diff = difflib.unified_diff(known.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="")
        pytest.fail("\n".join(diff))

    return check


@pytest.fixture
def assert_plot(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A function that fails unless a plot shows what the one of the given name in ``docs`` does: see support.pictures.

    It is written anew with ``--update-golden``.
    """

    def check(name: str, svg: str) -> None:
        path = GOLDEN.parents[1] / "docs" / name
        known = path.read_text(encoding="utf-8") if path.exists() else ""
        found = differences(meaning(known), meaning(svg)) if known else ["there is no such file"]
        if found and request.config.getoption("--update-golden"):
            path.write_text(svg, encoding="utf-8")
        elif found:
            pytest.fail(f"docs/{name}:\n" + "\n".join(found))

    return check


def _real(size: int) -> Callable[[], Iterator[Ranks]]:
    """Return a fixture of real processes in a gloo world, for jobs that leave the world whole."""

    @pytest.fixture(scope="session")
    def ranks() -> Iterator[Ranks]:
        with Ranks(size) as started:
            yield started

    return ranks


two, four, nine = map(_real, (2, 4, 9))


@pytest.fixture(scope="session")
def nvrtc() -> Nvrtc:
    """The NVRTC that is installed here."""
    try:
        found = device_compiler()
    except BuildError:
        if os.environ.get("ZENC_WITHOUT_NVRTC"):
            pytest.skip("ZENC_WITHOUT_NVRTC is set and there is no NVRTC: GPU kernels are not compiled")
        raise
    assert isinstance(found, Nvrtc), f"{found.name} is no NVRTC: pip install nvidia-cuda-nvrtc"
    return found
