"""GPU architectures: how they are written, and whose code runs where."""

from __future__ import annotations

import pytest

from zenc.codegen.build.arch import USUAL, Arch, arch_for, listed, parse_archs
from zenc.errors import BuildError

GPUS = (Arch(7, 5), Arch(8, 0), Arch(8, 6), Arch(8, 9), Arch(9, 0), Arch(10, 0), Arch(10, 3), Arch(12, 0), Arch(12, 1))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sm_90", "sm_90"), (["sm_100", "sm_90"], "sm_90, sm_100"), ("sm_90, sm_75,sm_90", "sm_75, sm_90"),
        (["sm_80,sm_121", "sm_75"], "sm_75, sm_80, sm_121"), ("none", "none"), ([], "none"), ("", "none"),
    ],
)  # fmt: skip
def test_lists_are_sorted_and_have_each_once(given, expected):
    assert listed(parse_archs(given)) == expected


@pytest.mark.parametrize("name", ["90", "sm90", "sm_9", "sm_90a", "compute_90", "SM_90", "sm_1234", "sm_09", "sm_٩٠"])
def test_other_words_are_no_architectures(name):
    with pytest.raises(BuildError, match=r"sm_90, which is compute capability 9\.0") as raised:
        parse_archs(name)
    assert raised.value.diagnostics[0].id == "unknown-arch"


@pytest.mark.parametrize(
    ("code", "gpu", "runs"),
    [("sm_80", "sm_86", True), ("sm_86", "sm_80", False), ("sm_80", "sm_90", False), ("sm_90", "sm_90", True)],
)
def test_code_runs_on_its_generation_from_its_version_on(code, gpu, runs):
    (of,), (on,) = parse_archs(code), parse_archs(gpu)
    assert of.runs_on(on) == runs
    assert arch_for(on, [of]) == (of if runs else None)


@pytest.mark.parametrize("gpu", GPUS, ids=str)
def test_the_usual_ones_run_on_all_usual_gpus(gpu):
    assert arch_for(gpu, USUAL) == Arch(gpu.major, 5 if gpu.major == 7 else 0)


def test_the_newest_that_runs_is_chosen():
    assert arch_for(Arch(8, 9), [Arch(8, 0), Arch(8, 6), Arch(9, 0)]) == Arch(8, 6)
    assert arch_for(Arch(7, 0), USUAL) is None
