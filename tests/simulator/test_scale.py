"""Thousands of ranks, in seconds of CPU time and little memory."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import re, sys, time
from tests.simulator.plans import plan_of
from zenc.simulator.predict import predict_on, network
from zenc.simulator.calibration import DEFAULTS
from zenc.gradients.profile_generators import zipf
from zenc.topology.shapes import nodes

size, where, schemes = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
way = network(nodes(size // 8, gpus=8) if where == "nodes" else None, size, DEFAULTS)
of = zipf(0.02, 1.05, 200_000, 64)
started = time.process_time()
for scheme in schemes:
    assert predict_on(plan_of(scheme, size), of, way).seconds > 0
# Not ru_maxrss, which keeps what the process was before exec: pytest.
kilobytes = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
print(time.process_time() - started, kilobytes / 1e6)
"""
EIGHT = ["balanced", "dense_ring", "sparcml", "holders", "dense_halving_doubling", "agsparse", "zen", "kylix"]


def cost(size: int, where: str, *schemes: str) -> tuple[float, float]:
    """Return CPU seconds, and the most memory in GB, of a process of its own."""
    command = [sys.executable, "-c", PROGRAM, str(size), where, *schemes]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600)
    seconds, memory = map(float, done.stdout.split())
    return seconds, memory


def test_a_thousand_ranks() -> None:
    seconds, memory = cost(1024, "switch", "balanced", "sparcml")
    assert seconds < 3 and memory < 1
