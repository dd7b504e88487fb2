"""Faults planted in the order of streams are found, also in graphs."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable

import pytest

from tests.emulator.build import HERE, kernels, program

Ran = subprocess.CompletedProcess[str]
RIGHT = "101010101010102 1\n"
"""Bytes that rank 0 gets from rank 1, and the reverse: 8 of the peer's number, plus one."""

both = pytest.mark.parametrize("how", ["direct", "graph"])


@pytest.fixture(scope="session")
def play() -> Callable[..., Ran]:
    """play(how, fault): the finished program, in ``mode``, with further variables of its environment."""

    def played(how: str, fault: str, mode: str = "plain", **variables: str) -> Ran:
        library = kernels({"planted.cu": (HERE / "samples" / "planted.cu").read_text("utf-8")}, mode)
        command = [str(program(HERE / "programs" / "streams.cpp", mode)), str(library), how, fault]
        return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, timeout=120)

    return played


@pytest.mark.parametrize("mode", ["plain", "address", "thread"])
@pytest.mark.parametrize("seed", ["0", "1"])
@both
def test_what_is_right_is_quiet(play, how, mode, seed):
    ran = play(how, "none", mode, EMULATOR_SEED=seed)
    assert (ran.stdout, ran.stderr, ran.returncode) == (RIGHT, "", 0)


@pytest.mark.parametrize(("fault", "where"), [("early_event", "add_one"), ("no_wait", "play")])
@both
def test_missing_order_is_a_race(play, how, fault, where):
    ran = play(how, fault, "thread")
    assert "WARNING: ThreadSanitizer: data race" in ran.stderr
    assert where in ran.stderr


@both
def test_waiting_for_nothing_shows_in_other_orders(play, how):
    assert any(play(how, "no_wait", EMULATOR_SEED=str(seed)).stdout != RIGHT for seed in (1, 2, 3))


@both
def test_memory_in_use_must_not_be_freed(play, how):
    ran = play(how, "early_free", "address")
    assert "ERROR: AddressSanitizer: heap-use-after-free" in ran.stderr


@both
def test_waiting_ends_and_names_the_peer(play, how):
    ran = play(how, "silent", EMULATOR_SECONDS="0.3")
    assert "NCCL on rank 0: rank 0: ncclSend of 1000 uint64 to rank 1 has waited for 0.3 s" in ran.stderr
