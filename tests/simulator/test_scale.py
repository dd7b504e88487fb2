"""A thousand ranks, in seconds of CPU time and little memory."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import re, time
from tests.simulator.plans import plan_of
from zenc.simulator.predict import predict_on, network
from zenc.simulator.calibration import DEFAULTS
from zenc.gradients.profile_generators import zipf

way, of = network(None, 1024, DEFAULTS), zipf(0.02, 1.05, 200_000, 64)
started = time.process_time()
for scheme in ("balanced", "sparcml"):
    assert predict_on(plan_of(scheme, 1024), of, way).seconds > 0
# Not ru_maxrss, which keeps what the process was before exec: pytest.
kilobytes = int(re.search(r"VmHWM:\\s*(\\d+)", open("/proc/self/status").read())[1])
print(time.process_time() - started, kilobytes / 1e6)
"""


def test_a_thousand_ranks() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=600)
    seconds, gigabytes = map(float, done.stdout.split())
    assert seconds < 10 and gigabytes < 1
