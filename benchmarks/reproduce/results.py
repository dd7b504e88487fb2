"""Results of the computation as JSON data, of which alone the page and the figures are made."""

from collections.abc import Callable
from statistics import median
from typing import Any

from benchmarks.pages import rounded
from benchmarks.reproduce import PUBLISHED, claims
from benchmarks.reproduce.claims import checks, summary, volumes
from benchmarks.reproduce.compare import NEAR, Row, computation, first_eighth, most, rows
from benchmarks.reproduce.cost import PUBLISHED_SCHEMES, by_gpu, cost, ours
from benchmarks.reproduce.fits import chosen, families
from benchmarks.reproduce.workloads import ASSUMED, NATURAL, PRUNED, workload

Results = dict[str, Any]


def results() -> Results:
    """Return everything; it takes some seconds of one core."""
    compared, volume = rows(), volumes()
    found: Results = rounded(
        {
            "fits": {"chosen": chosen(), "families": families()},
            "rows": [row.to_json() for row in compared],
            "agreement": agreement(compared),
            "computation": {name: computation(name) for name in PUBLISHED["workloads"]},
            "most": most(),
            "first eighth": eighths(),
            "seconds": seconds(),
            "volumes": {name: {str(n): share for n, share in found.items()} for name, found in volume.items()},
            "study": summary(volume),
            "crossover": crossovers(),
            "pair": pair(),
            "losses": losses(),
            "overflow": overflows(),
            "checks": checks(),
            "assumed": [list(each) for each in ASSUMED],
        }
    )
    return found


def agreement(compared: list[Row]) -> dict[str, Any]:
    """Return how many rows agree, of those that nothing was fitted to, and their median and largest error."""
    off = [abs(row.off) for row in compared if not row.fitted]
    return {"rows": len(off), "within": sum(each <= NEAR for each in off), "median": median(off), "most": max(off)}


def eighths() -> dict[str, float]:
    """Return ``first_eighth`` of each ratio of Figure 15 for an LLM, by ratio."""
    ratios = [each["value"] for each in PUBLISHED["communication"] if each["model"] in PRUNED]
    return {str(ratio): first_eighth(ratio) for ratio in ratios}


def seconds() -> list[dict[str, Any]]:
    """Return the seconds to synchronise the sparse layers at 25 Gbit/s, by every scheme."""
    found = []
    for name in PUBLISHED["workloads"]:
        of = workload(name)
        theirs = {scheme: cost(scheme, of, 25).seconds for scheme in PUBLISHED_SCHEMES}
        gpu = {s: by_gpu(s, of, 25).seconds for s in ("Sparse PS", "OmniReduce")} if name in NATURAL else {}
        mine = {scheme: each.seconds for scheme, each in ours(of, 25).items()}
        found.append({"model": name, "published": theirs, "by GPU": gpu, "ours": mine})
    return found


def crossovers() -> list[dict[str, Any]]:
    models: dict[str, Callable[[int], float | None]] = {
        "random subset": lambda n: claims.crossover(claims.random_subset, n),
        "common core": lambda n: claims.crossover(claims.common_core, n),
        "words": claims.crossover_of_zipf,
    }
    return [{"ranks": n, **{name: model(n) for name, model in models.items()}} for n in claims.SIZES]


def pair() -> list[dict[str, Any]]:
    """Return Balanced Parallelism's lag where AGsparse's is as published: NMT, batch 1."""
    found = []
    for name, model in (("random subset", claims.random_subset), ("common core", claims.common_core)):
        overlap = claims.behind_by(model, 8, PUBLISHED["nmt"]["few_agsparse"]["value"])
        behind = claims.balanced(model(overlap), 8) / claims.hierarchical(model(overlap), 8) - 1
        found.append({"model": name, "overlap": overlap, "behind": behind})
    return found


def losses() -> list[dict[str, Any]]:
    """Return the losses of the naive hash: as stated, and with the memory for which the stated numbers come out."""
    found = []
    for point in PUBLISHED["hash_loss"]:
        load = point["density"] / point["slots"]
        fits = claims.load_that_loses(point["value"])
        found.append(
            {
                **point, "load": load, "ours": claims.lost(load), "drawn": claims.lost_drawn(load),
                "load that fits": fits, "slots that fit": point["density"] / fits,
            }
        )  # fmt: skip
    return found


def overflows() -> list[dict[str, Any]]:
    """Return the share of units that reach Zen's serial memory, by the load of the parallel one."""
    kinds = {"together": claims.overflow, "in turn": claims.overflow_in_turn, "drawn": claims.overflow_drawn}
    load = PUBLISHED["collisions"]["load"]
    cases = [(load, k) for k in (1, 2, 3, 4)] + [(each, 4) for each in (1.0, 0.4, 0.25)]
    return [{"load": x, "functions": k, **{name: of(x, k) for name, of in kinds.items()}} for x, k in cases]
