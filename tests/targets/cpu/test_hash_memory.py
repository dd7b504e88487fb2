"""The memory of hierarchical hashing: nothing is lost, and its collisions are those of the theory."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs

FLAGS = ["-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
UNITS, PARTS, SEED = 1_000_000, 16, 7

Counts = tuple[list[int], int, int, int]
"""Units that each function placed; repeated ones; those in the serial memory; those in the list."""


@pytest.fixture(scope="module")
def counts_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Counts]:
    """counts_of(k, n, ...): what ``hash_counts.cpp`` prints. It fails where a unit is lost or made up."""
    program = tmp_path_factory.mktemp("hash") / "hash_counts"
    source, includes = Path(__file__).with_name("hash_counts.cpp"), [f"-I{folder}" for folder in include_dirs("cpu")]
    command = [*toolchain().command, *FLAGS, *SANITIZERS, *includes, str(source), "-o", str(program)]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr[:4000]

    def counts(k, n, units=UNITS, parts=PARTS, repeats=1, r1=2.0, r2=0.2, seed=SEED) -> Counts:
        arguments = [str(value) for value in (k, seed, units, parts, n, repeats, r1, r2)]
        ran = subprocess.run([program, *arguments], capture_output=True, text=True, timeout=100)
        assert ran.returncode == 0, ran.stderr[:4000]
        *parallel, repeated, serial, overflow = (int(word) for word in ran.stdout.split())
        return parallel, repeated, serial, overflow

    return counts


def left_over(k: int, load: float) -> float:
    """Return the share of units that find no cell with k functions, at ``load`` units a cell.

    The filled share f of cells grows by 1 - f^k with each unit a cell.
    """
    steps, filled = 10_000, 0.0
    for _ in range(steps):
        half = filled + (1 - filled**k) * load / steps / 2
        filled += (1 - half**k) * load / steps
    return 1 - filled / load


@pytest.mark.parametrize("k, percent", [(1, 21.3), (2, 7.6), (3, 3.0), (4, 1.2)])
def test_the_theory_has_the_known_values(k, percent):
    """Half load is Zen's r1 = 2."""
    assert 100 * left_over(k, 0.5) == pytest.approx(percent, abs=0.05)


@pytest.mark.parametrize("k, r1", [(1, 2.0), (2, 2.0), (3, 2.0), (4, 2.0), (3, 1.0), (3, 4.0), (4, 4.0)])
def test_as_many_units_collide_as_theory_says(counts_of, k, r1):
    n = 100_000
    parallel, repeated, serial, overflow = counts_of(k, n, r1=r1)
    assert sum(parallel) + serial + overflow == n and repeated == 0
    expected = left_over(k, 1 / r1) * n
    assert serial + overflow == pytest.approx(expected, abs=5 * expected**0.5)
    assert parallel == sorted(parallel, reverse=True)


def test_the_paper_serial_memory_suffices_from_two_functions_on(counts_of):
    """The paper's r2 = r1 / 10 is 20 % of the units, and k = 1 needs more."""
    assert counts_of(1, 100_000)[3] > 0
    assert all(counts_of(k, 100_000)[3] == 0 for k in (2, 3, 4))


def test_what_the_serial_memory_cannot_take_is_listed(counts_of):
    assert counts_of(3, 1000, r1=0, r2=0) == ([0, 0, 0], 0, 0, 1000)
    parallel, _, serial, overflow = counts_of(3, 100_000, r1=0.5, r2=0.1)
    assert serial == 10_000 and overflow == 100_000 - sum(parallel) - serial


def test_units_that_come_again_are_stored_once_where_they_are_found(counts_of):
    n = 50_000
    parallel, repeated, serial, overflow = counts_of(3, n, repeats=3)
    assert sum(parallel) + repeated + serial + overflow == 3 * n
    assert repeated == 2 * sum(parallel)


@settings(max_examples=tried(60), deadline=None)
@given(
    k=st.integers(1, 4),
    units=st.integers(1, 300),
    share=st.floats(0, 1),
    parts=st.integers(1, 40),
    repeats=st.integers(1, 3),
    r1=st.sampled_from([0.0, 0.01, 0.5, 1.0, 2.0, 64.0]),
    r2=st.sampled_from([0.0, 0.01, 0.2, 3.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_nothing_is_ever_lost(counts_of, k, units, share, parts, repeats, r1, r2, seed):
    n = round(units * share)
    parallel, repeated, serial, overflow = counts_of(k, n, units, parts, repeats, r1, r2, seed)
    assert sum(parallel) + repeated + serial + overflow == n * repeats
