"""Holders beside other schemes, as ``zenc simulate`` predicts them: among many ranks, and across machines.

    python -m benchmarks.holders            prints the tables
    python -m benchmarks.holders --write    keeps the numbers in benchmarks/results/holders.json, and the tables in
                                            docs/reference/cost.md

Rows of 64 values of float32, 200,000 of them, by the calibration that is assumed where nothing was measured.

Scale: ``balanced``, ``holders`` and ``holders`` where all hear all index sets, on one switch with links of 25 Gbit/s;
bytes are those of the busiest rank over the bound B2. Owners are counted exactly, of gradients that are drawn: by how
much the rank that owns most owns more than all do on average, if one rank after another hears all sets, or a directory
names them. Tiers: the ranks of a machine have 10 GB/s each to its memory, and share one link of 25 Gbit/s to all
others; carried are the bytes of the busiest link between machines.
"""

from typing import Any

import numpy as np

from benchmarks.pages import DOCS, RESULTS, Part, json_of, new_parser, save_json, table_of
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform, zipf
from zenc.language.files import load_file, load_text, locate
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import Calibration
from zenc.simulator.predict import network, predict, predict_on
from zenc.topology.load import load_topology
from zenc.wire.partitioning import named_owners, owners_of

KEPT, PAGE = RESULTS / "holders.json", DOCS / "reference" / "cost.md"
DIRECTORY = Part(PAGE, "<!-- directory: written by benchmarks.holders -->", "<!-- end of directory -->")
TIERS = Part(PAGE, "<!-- tiers: written by benchmarks.holders -->", "<!-- end of tiers -->")
UNITS, WIDTH, GBIT = 200_000, 64, 25
RANKS = (16, 64, 256, 1024, 4096)
OWNED_RANKS = (16, 64, 256)
"""Numbers of ranks whose owners are counted: gradients are drawn, and each unit's owner is chosen."""
GRADIENTS = {"1 % of the rows": (0.01, 0.0), "2 %, Zipf 1.05": (0.02, 1.05)}
"""Name -> density, and exponent of Zipf's law, 0 for none."""
CLUSTERS = ((2, 4), (4, 8), (64, 8))
"""Machines, and ranks in each."""
SCHEMES = {
    "balanced": "tier everyone: balanced",
    "holders": "tier everyone: holders",
    "balanced_across": "tier node({ranks}): balanced tier cluster: balanced",
    "holders_across": "tier node({ranks}): balanced tier cluster: holders",
}
"""Names -> the tiers of a scheme for machines of ``ranks`` ranks."""
TOPOLOGY = """
topology hosts(machines, ranks) {
    levels: node(machines), cpu(ranks)
    switch network
    for n in 0 .. machines - 1 {
        switch bus(n)
        for r in 0 .. ranks - 1 { link cpu(n, r) - bus(n): 10 GB/s, 1 us }
        link bus(n) - network: 25 Gbit/s, 5 us
    }
}
"""
Point = dict[str, Any]


def results() -> dict[str, list[Point]]:
    """Return the predictions and counts of all gradients."""
    return {
        "scale": [scale_point(gradient, ranks) for gradient in GRADIENTS for ranks in RANKS],
        "owned": [owned_point(gradient, ranks) for gradient in GRADIENTS for ranks in OWNED_RANKS],
        "tiers": [tier_point(gradient, *cluster) for gradient in GRADIENTS for cluster in CLUSTERS],
    }


def kept() -> dict[str, list[Point]]:
    return json_of(KEPT)


def scale_point(gradient: str, ranks: int) -> Point:
    """Return seconds of a call among ``ranks`` by each way, and bytes over the bound."""
    profile, by = _profile(gradient), Calibration(bandwidth=GBIT * 1e9 / 8)
    point: Point = {"gradient": gradient, "ranks": ranks}
    for name, given in {"balanced": {}, "holders": {}, "gathering": {"few": ranks}}.items():
        scheme = load_file(locate("holders" if given else name))
        found = predict(lower(resolve(scheme, None, given, {})[0]), ranks, profile, None, by)
        point |= {name: found.seconds, f"{name}_over_bound": found.sent / _bound(profile, ranks)}
    return point


def owned_point(gradient: str, ranks: int) -> Point:
    """Return units of the rank that owns most, over the mean, of gradients that are drawn by chance."""
    chances, rng = _chances(_profile(gradient)), np.random.default_rng(ranks)
    held = [np.flatnonzero(rng.random(UNITS) < chances) for _ in range(ranks)]
    point: Point = {"gradient": gradient, "ranks": ranks}
    for name, (_, owners) in {"from_all": owners_of(held), "by_directory": named_owners(held, UNITS)}.items():
        point[name] = float(np.bincount(owners, minlength=ranks).max() / (len(owners) / ranks))
    return point


def tier_point(gradient: str, machines: int, ranks: int) -> Point:
    """Return seconds of a call by each scheme across these machines, and what it carries."""
    by, profile = Calibration(), _profile(gradient)
    way = network(load_topology(TOPOLOGY, {"machines": machines, "ranks": ranks}), machines * ranks, by)
    point: Point = {"gradient": gradient, "machines": machines, "ranks": ranks, "seconds": {}, "carried": {}}
    for name, tiers in SCHEMES.items():
        scheme = load_text(f"scheme tiered {{ {tiers.format(ranks=ranks)} }}", "tiers")
        found = predict_on(lower(resolve(scheme)[0]), profile, way, by)
        point["seconds"][name], point["carried"][name] = found.seconds, found.carried
    return point


def _profile(gradient: str) -> Profile:
    density, exponent = GRADIENTS[gradient]
    return zipf(density, exponent, UNITS, WIDTH) if exponent else uniform(density, UNITS, WIDTH)


def _chances(profile: Profile) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the chance that a rank holds each unit."""
    if len(profile.ranges) == 1:
        return np.full(UNITS, profile.density)
    edges = np.arange(UNITS + 1, dtype=np.float64)
    return profile.union_between(edges[:-1], edges[1:], 1)


def _bound(profile: Profile, ranks: int) -> float:
    """Return B2 in bytes: n + c - 2 messages for a unit that c of n ranks hold, over all ranks."""
    units, held = UNITS * float(profile.union(ranks)), UNITS * profile.density
    return ((ranks - 2) * units / ranks + held) * profile.unit_bytes


def directory_tables(data: dict[str, list[Point]]) -> str:
    scale = [{**point, "over": point["holders"] / point["balanced"]} for point in data["scale"]]
    columns = (
        ("gradient", "{gradient}"), ("ranks", "{ranks:,}"), ("`balanced`, ms", "{balanced ms:.2f}"),
        ("all hear all, ms", "{gathering ms:.2f}"), ("`holders`, ms", "{holders ms:.2f}"),
        ("over `balanced`", "{over:.3f}"), ("bytes over B2, all hear all", "{gathering_over_bound:.3f}"),
        ("`holders`", "{holders_over_bound:.3f}"),
    )  # fmt: skip
    most = [max(point[way] for point in data["owned"]) for way in ("from_all", "by_directory")]
    owned = (
        f"Of drawn gradients, among up to {max(OWNED_RANKS)} ranks, the rank that owns most has at most {most[0]:.3f} "
        f"of the mean where all hear all, and {most[1]:.3f} by a directory."
    )
    names = ("balanced", "holders", "gathering")
    rows = ({**point, **{f"{name} ms": 1e3 * point[name] for name in names}} for point in scale)
    return f"{table_of(rows, columns, 1)}\n\n{owned}"


def tiers_table(data: dict[str, list[Point]]) -> str:
    columns = (
        ("gradient", "{gradient}"), ("machines x ranks", "{machines} x {ranks}"),
        ("`balanced`, ms", "{balanced:.2f}"), ("`holders`, ms", "{holders:.2f}"),
        ("`balanced` across, ms", "{balanced_across:.2f}"), ("`holders` across, ms", "{holders_across:.2f}"),
        ("over the best other", "{over:.3f}"), ("MB, `balanced` across", "{balanced MB:.2f}"),
        ("`holders` across", "{holders MB:.2f}"),
    )  # fmt: skip
    rows = []
    for point in data["tiers"]:
        ms = {name: 1e3 * seconds for name, seconds in point["seconds"].items()}
        best = min(took for name, took in ms.items() if name != "holders_across")
        carried = {f"{name} MB": point["carried"][f"{name}_across"] / 1e6 for name in ("balanced", "holders")}
        rows.append({**point, **ms, **carried, "over": ms["holders_across"] / best})
    return table_of(rows, columns, 1)


def main() -> None:
    parser = new_parser(__doc__)
    parser.add_argument("--write", action="store_true")
    write, data = parser.parse_args().write, results()
    for part, text in ((DIRECTORY, directory_tables(data)), (TIERS, tiers_table(data))):
        print(text)
        if write:
            part.write(text)
    if write:
        save_json(KEPT, data)


if __name__ == "__main__":
    main()
