"""``zenc lab``: runs a training script among hosts on this machine, over links of a set rate."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from zenc.cli.common import JsonOption, on_topology, print_json, reporting, show_diagnostics
from zenc.errors import Diagnostic

if TYPE_CHECKING:
    from zenc.lab.cluster import EmulatedCluster
    from zenc.lab.ranks import Outcome

EXAMPLES = """\b
Examples:
  zenc lab --hosts 4 --rate 100mbit -- train.py --epochs 1
  zenc lab --hosts 2 --ranks-per-host 2 --rate 1gbit -- -m my.training
  zenc lab --topology racks.zen -- train.py
  ZENC_ATTACH=0 zenc lab --hosts 4 --rate 100mbit -- train.py    the same without zenc: the other half of an A/B run

\b
What it answers: what does my training do on a slow network?
  1. Have the script make its process group as under torchrun: init_process_group("gloo"). It needs no other change.
  2. Run it on links like yours. Let it print the seconds of a step: those of the summary include its start.
  3. Run it again with ZENC_ATTACH=0, and compare the seconds of a step, and the bytes of each link.
Links are as slow as real ones. Processors are not more than there are: all hosts share those of this machine, so a
step that computes for long says little with more ranks than cores.

\b
What it takes: Linux, ip and tc (Debian: apt install iproute2), and root or a kernel that lets users make namespaces.
It changes nothing outside of its namespaces, and leaves nothing. Without them, `torchrun --nproc-per-node 4 train.py`
runs the same script at the speed of this machine.
"""


def lab(
    script: Annotated[
        list[str], typer.Argument(metavar="SCRIPT", help="A .py file with its arguments, or -m MODULE, after --.")
    ],
    hosts: Annotated[int, typer.Option(min=1, max=250, metavar="N", help="Hosts, each with a link of its own.")] = 4,
    ranks_per_host: Annotated[
        int, typer.Option(min=1, max=64, metavar="N", help="Ranks on a host, which share its link, and memory.")
    ] = 1,
    rate: Annotated[str, typer.Option(metavar="RATE", help="Rate of each link, each way: 100mbit, 1gbit.")] = "100mbit",
    topology: Annotated[
        str | None,
        typer.Option(metavar="TOPOLOGY", help="Topology: a host for each rank, and its links in place of --rate."),
    ] = None,
    loss: Annotated[
        float, typer.Option(min=0.0, max=0.9, metavar="SHARE", help="Share of packets lost at random, such as 0.01.")
    ] = 0.0,
    burst: Annotated[
        int, typer.Option(min=2000, metavar="BYTES", help="Bytes that a link takes at once after a pause.")
    ] = 70_000,
    queue: Annotated[
        str, typer.Option(metavar="SIZE", help="Bytes that wait for a link before more are dropped: 2mb, 256kb.")
    ] = "2mb",
    json: JsonOption = False,
) -> None:
    """Run a training script on an emulated network of this machine, as torchrun would on a real one.

    Each host is a network namespace. RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT and
    GLOO_SOCKET_IFNAME are set. Ranks of a host exchange through shared memory, others over their links.

    What ranks write is shown with the rank before each line, with --json on standard error. The first rank that fails
    ends the run with its exit status; Ctrl-C ends all. At the end there are the seconds, and the bytes of each link.
    """
    if not os.path.exists(script[0]) and not (script[0] == "-m" and len(script) > 1):
        raise typer.BadParameter(f"'{script[0]}' is no file; it takes a .py file, or -m and a module, after --")
    if topology and (hosts, ranks_per_host, rate, loss) != (4, 1, "100mbit", 0.0):
        raise typer.BadParameter("--topology has its hosts and links; --burst and --queue alone go with it")
    with reporting(json):
        from zenc.lab.ranks import run_ranks

        cluster = _cluster(hosts, rate, loss, burst, queue, topology)
        hosts, last = cluster.size, cluster.size * ranks_per_host - 1
        width, stream = len(str(last)), sys.stderr if json else sys.stdout
        found = run_ranks(
            cluster,
            script,
            ranks_per_host,
            lambda rank, line: print(f"rank {rank:{width}} | {line}", file=stream, flush=True),
        )
    errors = _errors(found, ranks_per_host)
    if json:
        links = [{"host": k, "sent": sent, "received": came} for k, (sent, came) in enumerate(found.carried)]
        told = {"hosts": hosts, "ranks": last + 1, "seconds": found.seconds, "links": links, "failed": found.failed}
        print_json({"ok": not found.status, **told, "diagnostics": [each.to_json() for each in errors]})
    else:
        _print(found, last + 1, f"of {rate} each way" if topology is None else f"as in {topology}")
    show_diagnostics(errors)
    if found.status:
        raise SystemExit(found.status)


def _cluster(hosts: int, rate: str, loss: float, burst: int, queue: str, topology: str | None) -> EmulatedCluster:
    """Return the cluster; raises NetworkError where there can be none."""
    from zenc.lab import cluster, impairment, routed
    from zenc.lab.namespaces import NetworkError

    made, (of, _) = cluster.EmulatedCluster(hosts, rate, burst, queue), on_topology(topology, None)
    if of:
        made = routed.RoutedCluster(of, burst, queue)
    elif loss:
        made = impairment.ImpairedCluster(hosts, rate, burst, queue, impairment.Impairment(lost=loss))
    if missing := (impairment if loss else cluster).why_not():
        help = "`zenc help lab-missing` says how to get it; torchrun runs the script without a network of hosts"
        raise NetworkError(Diagnostic("lab-missing", f"hosts on this machine take {missing}", help=help))
    return made


def _errors(found: Outcome, ranks_per_host: int) -> list[Diagnostic]:
    if found.failed is None:
        return []
    host = found.failed // ranks_per_host
    message = f"rank {found.failed}, on host {host}, was the first to fail, with exit status {found.status}"
    return [Diagnostic("rank-failed", message, help="its lines above say why")]


def _print(found: Outcome, ranks: int, links: str) -> None:
    from zenc.common.environment import is_on
    from zenc.common.wording import count, seconds_text, size_text

    hosts = count(len(found.carried), "host")
    print(f"{hosts}, {count(ranks, 'rank')}, links {links}: {seconds_text(found.seconds)}")
    print("host       sent   received")
    for host, (sent, received) in enumerate(found.carried):
        print(f"{host:4} {size_text(sent):>10} {size_text(received):>10}")
    if is_on("ZENC_ATTACH") and not found.status:
        print("the same without zenc, for comparison: ZENC_ATTACH=0 zenc lab ...")
