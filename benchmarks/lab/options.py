"""Options that the commands of the lab share: of a network and of turns, and what comes of them."""

import argparse
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import pages
from benchmarks.lab.settings import LabError
from zenc.lab.cluster import bits_per_second, why_not
from zenc.lab.namespaces import NetworkError
from zenc.topology.load import load_topology


def new_parser(prog: str, description: str | None) -> argparse.ArgumentParser:
    made = pages.new_parser(description, prog)
    made.add_argument("--ranks", type=int, default=8, metavar="N")
    made.add_argument("--network", choices=("auto", "shaped", "loopback"), default="auto")
    made.add_argument("--rate", default="100mbit", help="of every link, each way, as tc takes it (100mbit)")
    made.add_argument("--topology", default="", help="instead of --ranks and --rate: a file, FILE:NAME, or a builder")
    made.add_argument("--burst", type=int, default=70_000, metavar="BYTES", help="of the token bucket (70000)")
    made.add_argument("--queue", default="2mb", help="at every link, each way, as tc takes it (2mb)")
    return made


def add_turns(made: argparse.ArgumentParser, dense_rounds: int) -> None:
    made.add_argument("--reference", metavar="PEER", help="whose time the ratios are to (the first scheme)")
    made.add_argument("--rounds", type=int, default=15)
    made.add_argument(
        "--dense-rounds", type=int, default=dense_rounds, help=f"rounds with dense all-reduces ({dense_rounds})"
    )
    made.add_argument("--seed", type=int, default=1)
    made.add_argument("--limit", type=float, default=600.0, metavar="SECONDS", help="for all of it (600)")
    made.add_argument("--json", type=Path, metavar="FILE", help="everything, with every sample")


def run_of(options: argparse.Namespace, peers: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields of a ``Run`` but for its workload; raises LabError for impossible ones."""
    if not peers:
        raise LabError("there is nothing to compare; name --schemes, --peers or both")
    reference = options.reference or peers[0]
    if reference not in peers:
        raise LabError(f"--reference {reference} is not among {', '.join(peers)}")
    if min(options.ranks, options.rounds, options.dense_rounds) < 1:
        raise LabError("--ranks, --rounds and --dense-rounds are 1 or more")
    bits_per_second(options.rate)
    names = ("ranks", "topology", "burst", "queue", "rounds", "dense_rounds", "seed")
    same = {name: getattr(options, name) for name in names}
    rate = rate_of(options.network, options.rate)
    if options.topology:
        rate, same["ranks"] = "", load_topology(options.topology).size
    return {**same, "rate": rate, "peers": peers, "reference": reference, "warm_up": 2}


def rate_of(network: str, rate: str) -> str:
    """Return the rate, or "" for loopback: where it was asked for, or is the only possible way, which is then said."""
    if network == "loopback":
        return ""
    missing = why_not()
    if missing and network == "shaped":
        raise LabError(f"a shaped network takes {missing}")
    if missing:
        print(f"lab: a shaped network takes {missing}; running over loopback instead", file=sys.stderr)
    return "" if missing else rate


def carry_out(command: Callable[[], str]) -> None:
    """Print what ``command`` gives; an error of the lab ends the process with its message."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # by way of all that cleans up
    try:
        shown = command()
    except (LabError, NetworkError) as error:
        raise SystemExit(f"lab: {error}") from error
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    print(shown)
