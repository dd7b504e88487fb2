"""The time of `zenc --help`, next to a Python that does nothing; both are whole processes, the best of several."""

from __future__ import annotations

import subprocess
import sys
import time

RUNS = 15
HELP = "import sys; sys.argv = ['zenc', '--help']; from zenc.cli import main; main()"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import zenc": [sys.executable, "-c", "import zenc"],
    "zenc --help": [sys.executable, "-c", HELP],
}


def best(command: list[str]) -> float:
    """Return seconds of the fastest run: other work of the machine only ever slows start-up."""
    times = []
    for _ in range(RUNS):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    seconds = {name: best(command) for name, command in COMMANDS.items()}
    base = seconds["python -c pass"]
    print(f"{'command':<16} {'ms':>8} {'to python -c pass':>18}")
    for name, took in seconds.items():
        print(f"{name:<16} {took * 1e3:>8.1f} {took / base:>17.1f}x")


if __name__ == "__main__":
    main()
