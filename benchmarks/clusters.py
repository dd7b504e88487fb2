"""All-reduces on unequal clusters: synthesized schemes beside the best shipped ones and gloo's, on hosts of the lab.

    python -m benchmarks.clusters [--only torus] [--loads dense] [--rounds 3] [--json benchmarks/results/clusters.json]

Clusters are those of ``benchmarks/lab/clusters.zen``, a network namespace for each host and switch, links shaped to
their bandwidths: slow enough that two cores are not what is measured. ``bound``: the seconds of the bytes of a dense
tensor at the bound of the cluster, or of the rows, once summed, that some ranks have and others need, through the
links between them; and of headers. ``tuned`` is the best scheme of ``zenc tune`` but for trees, as
predicted for the cluster and the gradient. All take turns. ``cores``: the share of all cores that ranks used.
"""

import tempfile
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

import zenc
from benchmarks.lab.__main__ import run
from benchmarks.lab.options import carry_out
from benchmarks.lab.settings import Settings, Workload
from benchmarks.lab.workloads import KINDS, units_of
from benchmarks.pages import LEFT, RESULTS, RIGHT, ROOT, Part, parser_of, table
from zenc.gradients.index_sets import Gradients
from zenc.gradients.profile_fit import from_gradients
from zenc.synthesize.synthesis import synthesize
from zenc.topology.load import load_topology
from zenc.topology.model import Topology

FILE = "benchmarks/lab/clusters.zen"
CLUSTERS = ("one_switch", "slow_host", "two_racks", "broken_ring", "torus")
DENSE = Workload("dense", 125_000, 64, 1.0, 0.0)
LOADS = {"dense": (DENSE, 1), "2 %": (KINDS["rows"], 5)}
"""Gradient -> its workload, and how often all take turns in a round."""
MOST_CHUNKS = 96
"""The most chunks of trees for dense gradients: each takes processor time."""
SHIPPED = {"dense": ("dense_ring",), "2 %": ("balanced", "holders")}
GLOO = {"dense": "torch-dense", "2 %": "torch-coo"}
OURS, TUNED = "synthesized", "tuned"
PAYLOAD = 1448 / 1514
"""The share of a full packet that is not of Ethernet's, IP's and TCP's headers."""
MARKS = "<!-- clusters of the lab: written by benchmarks/clusters.py -->", "<!-- end of clusters of the lab -->"
PART = Part(ROOT / "benchmarks" / "reports" / "bounds.md", *MARKS, RESULTS / "clusters.json")


def rows_of(cluster: str, load: str, rounds: int) -> list[dict[str, Any]]:
    """Return a row for each way to sum."""
    (workload, times), topology = LOADS[load], load_topology(f"{FILE}:{cluster}")
    profile = None if load == "dense" else from_gradients(units_of(workload, topology.size, 1))
    found = synthesize(topology, 4.0 * workload.units * workload.width, gradient=profile)
    if profile is None:
        found = replace(found, form=found.form._replace(chunks=min(found.form.chunks, MOST_CHUNKS)))
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, f"{name}.zen") for name in (OURS, TUNED)]
        files[0].write_text(found.text())
        tuned = tuned_for(workload, topology.size, cluster)
        files[1].write_text(tuned.draft.text(TUNED))
        peers = (*map(str, files), *SHIPPED[load], GLOO[load])
        rounds *= times
        settings = Settings(topology.size, "", 70_000, "2mb", workload, peers, peers[0], rounds, rounds, 1, 1,
                            f"{FILE}:{cluster}")  # fmt: skip
        report = run(settings, 1200.0)
    least = found.least if load == "dense" else least_seconds(topology, units_of(workload, topology.size, 1))
    rows = []
    for peer, row in report.rows.items():
        ms = {name: round(getattr(row.seconds, name) * 1e3, 1) for name in ("low", "median", "high")}
        timing = {"ms": ms, "ratio": round(row.ratio.median, 3), "cores": round(row.processor, 2)}
        rows.append({"cluster": cluster, "load": load, "ranks": topology.size, "peer": Path(peer).stem, **timing})
        form = {"scheme": str(found.form)} if load != "dense" else {}
        rows[-1] |= {"bound": round(least / PAYLOAD * 1e3, 1), **form} if peer == peers[0] else {}
        rows[-1] |= {"scheme": tuned.draft.label} if peer == peers[1] else {}
    return rows


def least_seconds(topology: Topology, of: Gradients) -> float:
    """Return the seconds in which values of any scheme pass the narrowest cut: one for each row that is held before it.

    Of all sets of ranks the sum of what they hold has to come to the others, at the most that links carry.
    """
    links = nx.DiGraph()
    links.add_weighted_edges_from(((e.source, e.target, e.bandwidth) for e in topology.links), weight="capacity")
    worst, row = 0.0, 4.0 * of.width
    for size in range(1, topology.size):
        for some in combinations(range(topology.size), size):
            both = links.copy()
            both.add_edges_from(("held", rank) if rank in some else (rank, "needed") for rank in topology.ranks)
            rows = len(np.unique(np.concatenate([of.held[rank] for rank in some])))
            worst = max(worst, rows * row / float(nx.maximum_flow_value(both, "held", "needed")))
    return worst


def tuned_for(workload: Workload, size: int, cluster: str) -> Any:
    """Return the best result of a search that is not of trees."""
    profile = from_gradients(units_of(workload, size, 1))
    best = zenc.tune(profile, topology=f"{FILE}:{cluster}", device="cpu").best
    return next(each for each in best if not each.draft.label.startswith("trees"))


def shown(rows: list[dict[str, Any]]) -> str:
    """Return the table of all clusters and gradients."""
    heads = ("cluster", "hosts", "gradient", "bound, ms", "synthesized, ms", "best shipped, ms", "times as fast",
             "tuned, ms", "times as fast", "gloo, ms", "times as fast")  # fmt: skip
    cells = []
    for cluster, load in dict.fromkeys((row["cluster"], row["load"]) for row in rows):
        of = {row["peer"]: row for row in rows if (row["cluster"], row["load"]) == (cluster, load)}
        best = min((of[peer] for peer in SHIPPED[load]), key=lambda row: row["ratio"])
        named = ((best, best["peer"]), (of[TUNED], of[TUNED]["scheme"]), (of[GLOO[load]], ""))
        times = [
            (f"{row['ms']['median']:,.0f}" + f", `{name}`" * bool(name), f"{row['ratio']:.2f}") for row, name in named
        ]
        ours = of[OURS]
        cells.append((f"`{cluster}`", str(ours["ranks"]), load, f"{ours['bound'] or 0:,.0f}",
                      f"{ours['ms']['median']:,.0f}", *chain(*times)))  # fmt: skip
    return table(heads, (LEFT, RIGHT, LEFT, *[RIGHT] * 8), cells)


def measured(only: list[str], loads: list[str], rounds: int, file: Path | None) -> str:
    """Return the table of what was measured; with a ``file`` it is kept there, beside what was left out now."""
    kept = PART.kept()["rows"] if file and PART.results and PART.results.exists() else []
    fresh = [row for cluster in only for load in loads for row in rows_of(cluster, load, rounds)]
    rows = [row for row in kept if row["cluster"] not in only or row["load"] not in loads] + fresh
    rows.sort(key=lambda row: (CLUSTERS.index(row["cluster"]), [*LOADS].index(row["load"])))
    return PART.keep(file, {"rounds": rounds, "rows": rows}, shown(rows))


def main() -> None:
    parser = parser_of(__doc__, rounds=3)
    parser.add_argument("--only", nargs="+", choices=CLUSTERS, default=list(CLUSTERS), metavar="CLUSTER")
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=list(LOADS), metavar="GRADIENT")
    options = parser.parse_args()
    carry_out(lambda: measured(options.only, options.loads, options.rounds, options.json))


if __name__ == "__main__":
    main()
