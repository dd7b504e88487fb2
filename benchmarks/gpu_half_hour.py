"""Half an hour on a machine with a GPU: what to check and to measure there, in order of worth, in one report.

    make gpu-half-hour INSTALL=no PYTHON=python3     # that is: python3 -m benchmarks.gpu_half_hour
    python3 -m benchmarks.gpu_half_hour --list
    python3 -m benchmarks.gpu_half_hour --to build/gpu --only facts kernels

Runs from the source tree with the PyTorch of this Python, and installs nothing. Every step has a limit, and one that
fails keeps none from running. ``report.json`` has command, exit status, seconds and the end of the output of every
step, and what a step printed as JSON. It is written after each step, so that a machine that is taken away leaves what
was found. The exit status is the number of steps that failed.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.pages import ROOT, new_parser, save_json
from tests.gpu.run import find_packages

METRICS = (
    "gpu__time_duration.sum,dram__bytes_read.sum,dram__bytes_write.sum,lts__t_bytes.sum,smsp__inst_executed.sum,"
    "sm__warps_active.avg.pct_of_peak_sustained_active,launch__registers_per_thread"
)
SHARED_GPU = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "2", "NCCL_NVLS_ENABLE": "0",
    "CUDA_MODULE_LOADING": "EAGER", "NCCL_DEBUG": "WARN",
}  # fmt: skip
LONG_ROWS = ("--units", "1000", "1000", "800000")
"""Workloads of the benchmark of whole calls: small ones, but for the rows of 4 KiB."""
KEPT = 6000
"""Characters of a step's output that the report keeps, from its end."""


@dataclass(frozen=True, slots=True)
class Step:
    """A command of the half hour; ``limit`` is in seconds, and ``learns`` names its results in words."""

    name: str
    command: tuple[str, ...]
    limit: int
    learns: str
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ran:
    """A step's outcome: ``status`` is None where it ran into its limit, ``data`` what it printed as JSON."""

    step: Step
    status: int | None
    seconds: float
    output: str
    data: Any = None

    @property
    def failed(self) -> bool:
        return self.status != 0

    def to_json(self) -> dict[str, Any]:
        """Return JSON data, with the command as a shell would take it."""
        shown = {**asdict(self.step), "command": " ".join(self.step.command)}
        return {**shown, "status": self.status, "seconds": round(self.seconds, 1), "output": self.output,
                "data": self.data}  # fmt: skip


def steps(python: str) -> tuple[Step, ...]:
    """Return the steps to run, the most worth first."""
    tests = python, "tests/gpu/run.py", "-q"
    facts = "import torch; print(torch.__version__, torch.version.cuda, torch.cuda.nccl.version())"
    compiled = ("-m", "zenc", "compile", "balanced", "--target", "cuda", "--arch", "sm_90", "-o", "build/gpu-compiled")
    profiled = ("ncu", "--csv", "--clock-control", "none", "--metrics", METRICS, python, "-m", "benchmarks.gpu_call")
    call = ("-m", "benchmarks.gpu_call")
    in_vectors = {"ZENC_BULK_COPIES": "0"}
    one_at_a_time = {**SHARED_GPU, "CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    return (
        Step("machine", ("nvidia-smi",), 20, "GPU, driver, clocks"),
        Step("facts", (python, "-c", facts), 60, "versions of PyTorch, CUDA and NCCL"),
        Step("compile", (python, *compiled), 120, "seconds of NVRTC"),
        Step("kernels", (*tests, "-n14", "--maxfail=30", "tests/targets/cuda"), 300, "the bits of every kernel"),
        Step("train", (python, "-m", "tests.gpu.train", "nccl", "cuda:0"), 120, "DDP's seam, one rank"),
        Step("graphs", (python, "-m", "tests.gpu.graphs", "nccl", "cuda:0"), 120, "PyTorch's capture modes, one rank"),
        Step("emulator", (*tests, "tests/emulator"), 90, "what the emulator says of streams and graphs"),
        Step("calls", (*tests, "-n12", "-k", "not real_nccl", "tests/gpu/test_calls.py"), 300, "every shipped scheme"),
        Step("call", (python, *call), 300, "a whole call, kernel by kernel"),
        Step("vectors", (python, *call, *LONG_ROWS), 180, "rows of 4 KiB without bulk copies", in_vectors),
        Step("counters", (*profiled, "--repeat", "1"), 240, "bytes, instructions and occupancy of each kernel"),
        Step("nccl", (*tests, "-k", "real_nccl", "tests/gpu/test_calls.py"), 180, "real NCCL on one GPU", SHARED_GPU),
        Step("ddp", (*tests, "tests/gpu/test_ddp.py"), 240, "DDP's own messages beside zenc's", SHARED_GPU),
        Step("queue", (*tests, "-k", "training", "tests/gpu/test_ddp.py"), 120, "the same in one queue", one_at_a_time),
        Step("races", (*tests, "-m", "gpu and slow", "-n4", "tests/gpu/test_sanitizer.py"), 580, "compute-sanitizer"),
    )  # fmt: skip


def ran(step: Step) -> Ran:
    """Run ``step`` in a group of processes of its own, which ends with it."""
    started, environment = time.monotonic(), {**os.environ, **step.environment, "PYTHONUNBUFFERED": "1"}
    try:
        process = subprocess.Popen(
            step.command, cwd=ROOT, env=environment, text=True, errors="replace", start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
    except OSError as error:
        return Ran(step, 127, 0.0, f"{step.command[0]}: {error.strerror}")
    try:
        out, err = process.communicate(timeout=step.limit)
        status: int | None = process.returncode
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        status = None
    data = json.loads(out) if step.command[2:3] == ("benchmarks.gpu_call",) and not status else None
    return Ran(step, status, time.monotonic() - started, (err + out)[-KEPT:], data)


def write(found: Sequence[Ran], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    save_json(file, [each.to_json() for each in found])


def main() -> int:
    parser = new_parser(__doc__)
    parser.add_argument("--to", type=Path, default=Path("build/gpu"), help="the folder of the report")
    parser.add_argument("--only", nargs="+", default=[], metavar="STEP", help="these steps alone")
    parser.add_argument("--list", action="store_true", help="print the steps, and run none")
    given = parser.parse_args()
    chosen = [step for step in steps(sys.executable) if not given.only or step.name in given.only]
    if given.list:
        print("\n".join(f"{step.name:10}{step.limit:4} s  {step.learns}" for step in chosen))
        return 0
    if unknown := set(given.only) - {step.name for step in chosen}:
        parser.error(f"there is no step {', '.join(sorted(unknown))}: see --list")
    find_packages()
    found: list[Ran] = []
    for step in chosen:
        print(f"{step.name}: {step.learns}, up to {step.limit} s", flush=True)
        found.append(ran(step))
        print(f"    {found[-1].seconds:.1f} s, exit status {found[-1].status}", flush=True)
        write(found, given.to / "report.json")
    print(f"{given.to / 'report.json'}: {sum(each.failed for each in found)} of {len(found)} steps failed")
    return sum(each.failed for each in found)


if __name__ == "__main__":
    sys.exit(main())
