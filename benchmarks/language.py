"""Seconds that zenc takes to say what is wrong with a long text; whole processes, the best of several.

    python benchmarks/language.py [--lines 2000]

The text is the shipped patterns over and over, with a mistake near its begin, in its middle, or near its end.
Processor time says the same on a machine that is busy with other things; wall time does not.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from zenc.common.resources import directory

RUNS = 9
PROGRAM = "from zenc.cli import main; main()"
GOOD, BAD = "step { send all to rank - power where rank >= power }", "step { send part ) to { }"


def long_text(lines: int) -> list[str]:
    """Return at least ``lines`` lines of schedules."""
    patterns = (directory("schemes") / "patterns.zen").read_text(encoding="utf-8")
    text: list[str] = []
    while len(text) < lines:
        copy = f"_{len(text)} {{"
        text += (
            patterns.replace("point_to_point {", "point_to_point" + copy)
            .replace("ring {", "ring" + copy)
            .replace("hierarchy {", "hierarchy" + copy)
            .splitlines()
        )
    return text


def with_mistake(text: list[str], after: int) -> list[str]:
    """Return the text with its first good line from ``after`` on made bad."""
    at = next(number for number in range(after, len(text)) if GOOD in text[number])
    return [*text[:at], text[at].replace(GOOD, BAD), *text[at + 1 :]]


def seconds(file: Path) -> tuple[float, float]:
    """Return wall and processor time of ``zenc check FILE``, which must refuse it; each the least of all runs."""
    times = [_run(file) for _ in range(RUNS)]
    return min(wall for wall, _ in times), min(processor for _, processor in times)


def _run(file: Path) -> tuple[float, float]:
    before, started = _processor_time(), time.perf_counter()
    done = subprocess.run([sys.executable, "-c", PROGRAM, "check", str(file)], capture_output=True, text=True)
    wall = time.perf_counter() - started
    assert done.returncode == 1 and "error[syntax]" in done.stderr + done.stdout, done
    return wall, _processor_time() - before


def _processor_time() -> float:
    """Return the seconds of all processes that this one has started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=2000)
    lines = parser.parse_args().lines
    text = long_text(lines)
    print(f"{len(text)} lines; seconds until zenc check has shown the mistake, and of processor time")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.zen"
        for place, after in (("near the begin", 0), ("in the middle", lines // 2), ("near the end", len(text) - 90)):
            file.write_text("\n".join(with_mistake(text, after)), encoding="utf-8")
            wall, processor = seconds(file)
            print(f"{place:16} {wall:6.2f} {processor:6.2f}")


if __name__ == "__main__":
    main()
