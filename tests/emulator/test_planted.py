"""Faults planted in kernels are found, each by the tool that is for it."""

import os
import re
import subprocess
from collections.abc import Callable

import pytest

from tests.emulator.build import HERE, kernels, program
from tests.emulator.sanitized import assert_clean

SOURCE = HERE / "samples" / "planted.cu"
SOON = {"EMULATOR_SECONDS": "0.2"}
Ran = subprocess.CompletedProcess[str]


def line_of(kernel: str, text: str, nth: int = 0) -> int:
    """Return the number of the nth line with ``text`` after the start of a kernel."""
    lines = SOURCE.read_text("utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if f"ZENC_KERNEL({kernel}," in line)
    return [i + 1 for i, line in enumerate(lines) if i >= start and text in line][nth]


@pytest.fixture(scope="session")
def run() -> Callable[..., Ran]:
    """run(kernel, threads, words): the finished program, in ``mode``, with further variables of its environment."""

    def ran(kernel: str, threads: int, words: int, *, blocks: int = 1, mode: str = "plain", **variables: str) -> Ran:
        library = kernels({"planted.cu": SOURCE.read_text("utf-8")}, mode)
        runner = program(HERE / "programs" / "run_kernel.cpp", mode)
        command = [str(runner), str(library), kernel, str(blocks), str(threads), str(words)]
        environment = {**os.environ, "EMULATOR_WORKERS": "2", **variables}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)

    return ran


def numbers(ran: Ran) -> list[int]:
    assert ran.returncode == 0, ran.stderr
    return [int(word) for word in ran.stdout.split()]


ERRORS = {
    "divergent_barriers": (64, "__syncthreads", 1, "divergent __syncthreads"),
    "uneven_barriers": (64, "__syncthreads", 0, "32 of 64 threads have exited before this __syncthreads"),
    "exit_before_barrier": (64, "__syncthreads", 0, "32 of 64 threads have exited before this __syncthreads"),
    "exited_lanes": (64, "__ballot_sync", 0, "mask ffffffff names lanes [0-9a-f]*, which have exited or never were"),
    "not_in_its_mask": (32, "__ballot_sync", 0, "lane 1 is not in its own mask 55555555"),
    "reads_outside_its_mask": (32, "__shfl_sync", 0, "lane 0 reads lane 16 outside of mask 0000ffff"),
    "deadlock": (32, "__syncthreads", 0, "deadlock: waits in __syncthreads, others elsewhere"),
    "too_much_shared": (32, "second", 0, "the block's shared arrays exceed 49152 bytes"),
    "trap": (32, "__trap", 0, "__trap"),
    "misaligned_store": (1, "= threadIdx.x", 0, "a store of 8 bytes at address 0x[0-9a-f]*, 4 behind a multiple of 8"),
    "misaligned_vector": (1, ".y", 0, "an access of 16 bytes at address 0x[0-9a-f]*, 8 behind a multiple of 16"),
    "misaligned_atomic": (1, "atomicAdd", 0, "an atomic function of 8 bytes at address 0x[0-9a-f]*, 4 behind"),
}
"""Kernel -> threads, the text of the line that is blamed and which of them, the message."""


@pytest.mark.parametrize("kernel", ERRORS)
def test_misuse_is_reported_with_its_line(run, kernel):
    threads, text, nth, message = ERRORS[kernel]
    ran = run(kernel, threads, 33 if kernel == "exited_lanes" else 32)
    assert ran.returncode == 1
    assert re.search(f"emulator: {kernel}: block \\(0, 0\\), thread .*{message}", ran.stderr), ran.stderr
    assert re.search(rf"planted\.cu:{line_of(kernel, text, nth)}$", ran.stderr, re.M), ran.stderr


def test_spinning_for_ever_ends(run):
    ran = run("spins", 32, 1, EMULATOR_SECONDS="0.2")
    assert ran.returncode == 1
    assert "still spins after" in ran.stderr


def test_waiting_for_a_block_of_a_smaller_index_ends(run):
    """Blocks run one at a time here, and in ascending order the wait ends, which CUDA does not promise."""

    def ran(seed: int) -> Ran:
        return run("waits_for_another_block", 32, 7, blocks=7, EMULATOR_WORKERS="1", EMULATOR_SEED=str(seed), **SOON)

    assert numbers(ran(0)) == [1] * 7
    found = [ran(seed) for seed in (1, 2, 3)]
    assert all(each.returncode == 1 and "still spins after" in each.stderr for each in found)


@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_waiting_for_a_thread_of_the_same_block_ends(run, seed):
    assert numbers(run("waits_in_its_block", 32, 1, EMULATOR_SEED=seed)) == [1]


def test_shared_memory_is_never_zero_at_first(run):
    assert numbers(run("shared_unwritten", 4, 4)) == [0xCDCDCDCDCDCDCDCD, 1, 1, 1]


def test_other_orders_show_missing_barriers(run):
    right = [(i + 1) % 256 for i in range(256)]
    assert any(numbers(run("no_barrier", 256, 256, EMULATOR_SEED=str(seed))) != right for seed in (1, 2))
    assert numbers(run("no_syncwarp", 64, 64, EMULATOR_SEED="1")) == [i ^ 1 for i in range(64)]


RACES = {
    "no_barrier": (1, "all[(threadIdx"),
    "no_syncwarp": (1, "all[threadIdx.x ^ 1]"),
    "check_then_set": (2, "out[cell]"),
    "add_without_atomics": (8, "out[0] += 1"),
    "flag_without_fence": (2, "out[2] = out[0]"),
}
"""Kernel -> blocks, the text of the line that races."""


@pytest.mark.parametrize("kernel", RACES)
def test_races_are_found(run, kernel):
    blocks, text = RACES[kernel]
    ran = run(kernel, 64, 64, blocks=blocks, mode="thread")
    assert "WARNING: ThreadSanitizer: data race" in ran.stderr
    assert f"planted.cu:{line_of(kernel, text)}" in ran.stderr


@pytest.mark.parametrize("kernel", ["past_the_end", "past_shared"])
def test_accesses_outside_are_found(run, kernel):
    ran = run(kernel, 64, 8, mode="address")
    assert "ERROR: AddressSanitizer: heap-buffer-overflow" in ran.stderr
    assert f"planted.cu:{line_of(kernel, '= 1;' if kernel == 'past_the_end' else '*cell = 1')}" in ran.stderr


@pytest.mark.parametrize("mode", ["address", "thread"])
def test_misuse_is_also_reported_under_sanitizers(run, mode):
    ran = run("divergent_barriers", 64, 32, mode=mode)
    assert "divergent __syncthreads" in ran.stderr
    assert "Sanitizer" not in ran.stderr


Played = subprocess.CompletedProcess[str]
RIGHT = "101010101010102 1\n"
"""Bytes that rank 0 gets from rank 1, and the reverse: 8 of the peer's number, plus one."""

both = pytest.mark.parametrize("how", ["direct", "graph"])


@pytest.fixture(scope="session")
def play() -> Callable[..., Played]:
    """play(how, fault): the finished program, in ``mode``, with further variables of its environment."""

    def played(how: str, fault: str, mode: str = "plain", **variables: str) -> Played:
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


KERNELS = ("codec", "compress", "expand", "holders", "merge", "place", "scan")
TESTS = (*(f"targets/cuda/test_{name}" for name in KERNELS), "runtime/lossy/test_gpu_calls")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("tests", TESTS)
@pytest.mark.parametrize("mode", ["address", "thread"])
def test_kernels_are_quiet(mode, tests):
    """Tests of whole calls run in four processes, since each fiber takes mappings."""
    assert_clean(mode, f"tests/{tests}.py", "-n4")
