"""Seconds of whole processes of zenc: starting, showing a mistake in a long text, proving every shipped scheme.

    python -m benchmarks.startup                   `zenc --help`, next to a Python that does nothing
    python -m benchmarks.startup --lines 2000      until `zenc check` has shown a mistake near the begin, middle or end
    python -m benchmarks.startup --sizes 64,1024   `zenc check` of each shipped scheme, by the number of ranks

Each is the best of several runs, since other work of the machine only ever slows them; of a proof one.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.pages import new_parser
from zenc.common.resources import directory
from zenc.scheme.library import shipped

RUNS = 15
HELP = "import sys; sys.argv = ['zenc', '--help']; from zenc.cli import main; main()"
COMMANDS = {"python -c pass": ["-c", "pass"], "import zenc": ["-c", "import zenc"], "zenc --help": ["-c", HELP]}
GOOD, BAD = "step { send all to rank - power where rank >= power }", "step { send part ) to { }"


def best(words: list[str], runs: int = RUNS, status: int = 0) -> float:
    """Return the seconds of the fastest run of Python with these ``words``, each of which ends with ``status``."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        assert done.returncode == status, done
    return min(times)


def long_text(lines: int) -> list[str]:
    """Return at least ``lines`` lines of schedules: the shipped patterns over and over."""
    patterns = (directory("schemes") / "patterns.zen").read_text(encoding="utf-8")
    text: list[str] = []
    while len(text) < lines:
        copied = patterns
        for name in ("point_to_point", "ring", "hierarchy"):
            copied = copied.replace(f"{name} {{", f"{name}_{len(text)} {{")
        text += copied.splitlines()
    return text


def with_mistake(text: list[str], after: int) -> str:
    """Return the text with its first good line from ``after`` on made bad."""
    at = next(number for number in range(after, len(text)) if GOOD in text[number])
    return "\n".join([*text[:at], text[at].replace(GOOD, BAD), *text[at + 1 :]])


def show_mistakes(lines: int) -> None:
    text = long_text(lines)
    print(f"{len(text)} lines; seconds until zenc check has shown the mistake")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.zen"
        for place, after in (("near the begin", 0), ("in the middle", lines // 2), ("near the end", len(text) - 90)):
            file.write_text(with_mistake(text, after), encoding="utf-8")
            print(f"{place:16} {best(['-m', 'zenc', 'check', str(file)], status=1):6.2f}")


def show_proofs(sizes: list[str]) -> None:
    print(f"{'zenc check, seconds':32}" + "".join(f"{size:>8} ranks" for size in sizes))
    for name in (str(entry["name"]) for entry in shipped()):
        took = [best(["-m", "zenc", "check", name, "--ranks", size], runs=1) for size in sizes]
        print(f"{name:32}" + "".join(f"{each:14.2f}" for each in took), flush=True)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--lines", type=int)
    parser.add_argument("--sizes", metavar="N,N")
    options = parser.parse_args()
    if options.lines:
        return show_mistakes(options.lines)
    if options.sizes:
        return show_proofs(options.sizes.split(","))
    seconds = {name: best(words) for name, words in COMMANDS.items()}
    print(f"{'command':<16} {'ms':>8} {'to python -c pass':>18}")
    for name, took in seconds.items():
        print(f"{name:<16} {took * 1e3:>8.1f} {took / seconds['python -c pass']:>17.1f}x")


if __name__ == "__main__":
    main()
