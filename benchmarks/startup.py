"""Seconds of whole processes of zenc: starting, and proving every shipped scheme.

    python -m benchmarks.startup                   `zenc --help`, next to a Python that does nothing
    python -m benchmarks.startup --sizes 64,1024   `zenc check` of each shipped scheme, by the number of ranks

Each is the best of several runs, since other work of the machine only ever slows them; of a proof one.
"""

import subprocess
import sys
import time

from benchmarks.pages import new_parser
from zenc.scheme.library import shipped

RUNS = 15
HELP = "import sys; sys.argv = ['zenc', '--help']; from zenc.cli import main; main()"
COMMANDS = {"python -c pass": ["-c", "pass"], "import zenc": ["-c", "import zenc"], "zenc --help": ["-c", HELP]}


def best(words: list[str], runs: int = RUNS) -> float:
    """Return the seconds of the fastest run of Python with these ``words``."""
    times = []
    for _ in range(runs):
        start = time.perf_counter()
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True)
        times.append(time.perf_counter() - start)
        assert done.returncode == 0, done
    return min(times)


def show_proofs(sizes: list[str]) -> None:
    print(f"{'zenc check, seconds':32}" + "".join(f"{size:>8} ranks" for size in sizes))
    for name in (str(entry["name"]) for entry in shipped()):
        took = [best(["-m", "zenc", "check", name, "--ranks", size], runs=1) for size in sizes]
        print(f"{name:32}" + "".join(f"{each:14.2f}" for each in took), flush=True)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--sizes", metavar="N,N")
    options = parser.parse_args()
    if options.sizes:
        return show_proofs(options.sizes.split(","))
    seconds = {name: best(words) for name, words in COMMANDS.items()}
    print(f"{'command':<16} {'ms':>8} {'to python -c pass':>18}")
    for name, took in seconds.items():
        print(f"{name:<16} {took * 1e3:>8.1f} {took / seconds['python -c pass']:>17.1f}x")


if __name__ == "__main__":
    main()
