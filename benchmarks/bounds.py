"""Synthesized schemes beside the bounds of their clusters: the share that a dense all-reduce of 64 GB reaches.

    python -m benchmarks.bounds                      prints the table of CLUSTERS
    python -m benchmarks.bounds 'dgx(2)' FILE        of these instead
    python -m benchmarks.bounds --write [CLUSTER]    keeps the numbers in benchmarks/results/bounds.json, beside others,
                                                     and the table of all in benchmarks/reports/bounds.md

Seconds are of the processor, from the file of a cluster to a scheme that is proved and predicted.
"""

from collections.abc import Iterable
from time import process_time
from typing import Any

from benchmarks.pages import LEFT, RESULTS, RIGHT, ROOT, Part, new_parser, save_json, table
from zenc.synthesize.synthesis import synthesize
from zenc.topology.load import load_topology

PART = Part(ROOT / "benchmarks" / "reports" / "bounds.md", results=RESULTS / "bounds.json")
BUILDERS = (
    *("dgx(1)", "dgx(2)", "dgx(4)", "dgx(8)", "dgx(32)"),
    *("nodes(2)", "nodes(4)", "nodes(8, nics = 4)", "nodes(3, gpus = 4)", "nodes(32)"),
    *(f"nodes({shape}, nics = 3)" for shape in ("4", "8", "5, gpus = 7", "3, gpus = 5")),
    *("nodes(3, nics = 6)", "nodes(4, nics = 6)"),
    *("ring(8)", "ring(16)", "torus(3, 4)", "torus(4, 4)", "torus(4, 8)", "torus(8, 8)", "torus(4, 4, 4)"),
    *("torus(16, 16)", "fat_tree(4)", "fat_tree(6)", "fat_tree(10)", "dragonfly(2, 3, 1)"),
)
SAMPLES = "tests/topology/samples"
FILES = (
    *(f"{SAMPLES}/{name}" for name in ("a100_pcie.txt", "dgx_a100.txt", "hgx_h100.xml", "v100_cube_mesh.txt")),
    *(f"{SAMPLES}/{name}" for name in ("virtual.xml", "square.graphml", "star.edges.json", "star.links.json")),
    *(f"{SAMPLES}/{name}" for name in ("dgx_a100.txt(nodes = 2)", "hgx_h100.xml(nodes = 4)")),
    *(f"schemes/topologies/{name}" for name in ("two_boxes.zen", "p3.zen")),
    *(f"examples/unequal_machines/{name}" for name in ("box.txt", "small.txt", "cluster.zen")),
)  # fmt: skip
CLUSTERS = (*BUILDERS, *(str(ROOT / name) for name in FILES))


def point(cluster: str) -> dict[str, Any]:
    """Return the figures of the scheme for ``cluster``, a file or a builder."""
    started = process_time()
    found = synthesize(load_topology(cluster)).to_json()
    name = cluster.rpartition("/")[2]
    return {"cluster": name, **found, "cpu_seconds": round(process_time() - started, 1)}


def bounds_table(points: Iterable[dict[str, Any]]) -> str:
    heads = ["cluster", "ranks", "bound, GB/s", "share", "with idle links, GB/s", "trees", "depth", "chunks", "seconds"]
    return table(heads, [LEFT, *[RIGHT] * (len(heads) - 1)], map(_row, points))


def _row(of: dict[str, Any]) -> list[str]:
    share = f"{of['share']:.1%}"
    bound, idle = of["bound"] / 1e9, of["bound_with_idle_links"] / 1e9
    shape = [str(of[name]) for name in ("trees", "depth", "chunks")]
    more = f"{idle:.1f}" if of["idle_links"] else ""
    return [f"`{of['cluster']}`", str(of["ranks"]), f"{bound:.1f}", share, more, *shape, f"{of['cpu_seconds']:.1f}"]


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("clusters", nargs="*", metavar="CLUSTER")
    given = parser.parse_args()
    points = [point(cluster) for cluster in given.clusters or CLUSTERS]
    print(bounds_table(points))
    if given.write:
        before = {each["cluster"]: each for each in PART.kept()}
        data = list({**before, **{each["cluster"]: each for each in points}}.values())
        save_json(PART.results, data)
        PART.write(bounds_table(data))


if __name__ == "__main__":
    main()
