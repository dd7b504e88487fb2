"""Statements of the paper, as its definitions and the costs here have them: sizes, crossovers, what hashing loses.

What a formula and drawing both can tell is computed twice, so that neither has to be believed.
"""

from collections.abc import Callable
from math import exp, log2
from typing import Any

import numpy as np

from benchmarks.reproduce import PUBLISHED, SPARSITY
from benchmarks.reproduce.cost import PUBLISHED_SCHEMES, WIRE, cost, hashing, plan_of
from benchmarks.reproduce.overlap import of_values, root, words
from benchmarks.reproduce.workloads import MACHINES, NATURAL, density_of, exponent_of, fitted, rows_of, workload
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import zipf
from zenc.simulator.predict import predict

Gamma = Callable[[float], float]

SIZES = (2, 4, 8, 16, 32, 64, 128)
ITEMS = 200_000


def random_subset(q: float) -> Gamma:
    """Return gamma^k where every rank draws from the same units, and two overlap by ``q``."""
    return lambda k: (1 - (1 - q) ** k) / q


def common_core(q: float) -> Gamma:
    """Return gamma^k where all ranks share ``q`` of their units, and the rest of them is nobody else's."""
    return lambda k: q + (1 - q) * k


def hierarchical(gamma: Gamma, n: int) -> float:
    """Return the volume of Hierarchical Centralization over 2 d M (equation 2)."""
    return sum(gamma(2**i) for i in range(int(log2(n))))


def balanced(gamma: Gamma, n: int) -> float:
    """Return the volume of Balanced Parallelism over 2 d M (equation 1)."""
    return (n - 1) / n * (gamma(n) + 1)


def crossover(model: Callable[[float], Gamma], n: int) -> float | None:
    """Return the overlap from which on Balanced Parallelism sends less on ``n`` ranks; None where it never does."""

    def gain(q: float) -> float:
        return hierarchical(model(q), n) - balanced(model(q), n)

    return root(gain, 1e-9, 1.0) if gain(1.0) > 1e-9 else None


def behind_by(model: Callable[[float], Gamma], n: int, share: float) -> float:
    """Return the overlap with which AGsparse, (n - 1) 2 d M, is behind Hierarchical Centralization by ``share``."""
    return root(lambda q: (n - 1) / hierarchical(model(q), n) - 1 - share, 1e-9, 1.0)


def crossover_of_zipf(n: int, density: float = 1e-3, units: int = 1_000_000) -> float | None:
    """Return the crossover where words are drawn by Zipf's law, whose exponent decides about the overlap.

    Ranks that draw evenly overlap by the density already, and there is nothing below.
    """

    def gain(exponent: float) -> float:
        gamma = zipf(density, exponent, units).densification
        return hierarchical(lambda k: float(gamma(k)), n) - balanced(lambda k: float(gamma(k)), n)

    if gain(4.0) <= 0:
        return None
    exponent = 0.0 if gain(0.0) > 0 else root(gain, 0.0, 4.0)
    return zipf(density, exponent, units).overlap


def lost(load: float) -> float:
    """Return the share of items that a hash into items / ``load`` slots overwrites: 1 - (1 - e^-load) / load."""
    return 1 - (1 - exp(-load)) / load


def load_that_loses(share: float) -> float:
    """Return the load at which a hash overwrites ``share`` of the items."""
    return root(lambda load: lost(load) - share, 1e-6, 2.0)


def lost_drawn(load: float, seed: int = 0) -> float:
    """Return the lost share as drawn: of ITEMS items in random slots, all but one in each slot are lost."""
    slots = np.random.default_rng(seed).integers(round(ITEMS / load), size=ITEMS)
    return 1 - len(np.unique(slots)) / ITEMS


def overflow(load: float, functions: int) -> float:
    """Return the share of items without a slot by ``functions`` hash functions; all try the first, then the second...

    Into each free slot goes one of those that meet there: of u items a slot, f (1 - e^-u) of the free slots f fill up.
    """
    free, left = 1.0, load
    for _ in range(functions):
        placed = free * (1 - exp(-left))
        free, left = free - placed, left - placed
    return left / load


def overflow_in_turn(load: float, functions: int, steps: int = 20_000) -> float:
    """Return the overflow when items come in turn: one is placed unless all its slots, of which x are full, are."""
    full, step = 0.0, load / steps
    for _ in range(steps):
        ahead = full + step / 2 * (1 - full**functions)
        full += step * (1 - ahead**functions)
    return (load - full) / load


def overflow_drawn(load: float, functions: int, seed: int = 0) -> float:
    random = np.random.default_rng(seed)
    slots = round(ITEMS / load)
    taken, left = np.zeros(slots, dtype=bool), ITEMS
    for _ in range(functions):
        tried = np.unique(random.integers(slots, size=left))
        placed = tried[~taken[tried]]
        taken[placed] = True
        left -= len(placed)
    return left / ITEMS


WORD = 4
R1, R2 = 2.0, 0.2
"""Zen's parallel and serial memory, in slots a unit that is not zero."""


def checks() -> list[dict[str, Any]]:
    """Return a line for each statement: stated, published and computed."""
    return [{"what": what, "published": said, "ours": ours} for what, said, ours in (*of_formats(), *of_hashing())]


def of_formats() -> list[tuple[str, str, str]]:
    said = {name: point["value"] for name, point in PUBLISHED["sizes"].items()}
    plain = workload("DeepFM").values * WORD / 32
    of_sum = SPARSITY["bert_density_of_128"]
    return [
        ("a plain bitmap of DeepFM's embedding", megabytes(said["bitmap"]), megabytes(plain)),
        ("the same with hashed parts, 16 servers", megabytes(said["hashed"]), megabytes(MACHINES * plain)),
        ("what pulling BERT's sum could save", f"{said['ideal']:g} times", f"{1 / of_sum:.2f} times"),
        ("what COO leaves of that", f"{said['coo']:g} times", f"{1 / (2 * of_sum):.2f} times"),
        ("COO saves volume", f"below {said['coo_saves_below']:.0%} density", f"below {1 / 2:.0%}"),
        (
            "a plain bitmap, hashed parts, 16 servers",
            f"below {said['bitmap_saves_below']:.0%}",
            f"below {1 - MACHINES / 32:.0%}",
        ),
        ("a hash bitmap", f"still at {said['hash_bitmap_saves_at']:.0%}", f"below {1 - 1 / 32:.1%}"),
    ]


def of_hashing() -> list[tuple[str, str, str]]:
    said, most = PUBLISHED["saved"], PUBLISHED["sizes"]["memory"]["value"]
    of = workload(said["model"])
    saved = {g: cost("AllReduce", of, g).seconds - cost("Zen", of, g).seconds for g in (25, 100)}
    memories = {name: hash_memory(name) for name in NATURAL}
    largest = max(memories, key=lambda name: memories[name])
    return [
        ("saved by Zen, DeepFM, 25 Gbit/s", f"{said['seconds'] * 1e3:.0f} ms", f"{saved[25] * 1e3:.0f} ms"),
        (
            "hashing over that, 100 Gbit/s",
            f"{said['hashing_of_saving_at_100']:.0%}",
            f"{hashing(of) / (saved[100] + hashing(of)):.0%}",
        ),
        (
            "hash memory, with r1 and r2 of all parts together",
            f"below {megabytes(most)}",
            f"{megabytes(memories[largest])} at most ({largest})",
        ),
        ("the same, if r1 is of one part", "", megabytes(MACHINES * memories[largest])),
        ("tables of the hash bitmap, DeepFM, 4 bytes an index", "not counted", megabytes(of.values * WORD)),
        ("overlap of two GPUs", "well above 0.05 in all models", overlaps()),
    ]


def hash_memory(name: str) -> float:
    """Return bytes of Zen's memory for a machine's part of the embedding."""
    of = workload(name)
    return of.values * of.machine.density * (R1 + R2) * WORD


def overlaps() -> str:
    found = {name: fitted(name).overlap for name in PUBLISHED["workloads"]}
    least, most = (choose(found, key=lambda name: found[name]) for choose in (min, max))
    return f"{found[least]:.2f} ({least}) to {found[most]:.2f} ({most})"


def megabytes(count: float) -> str:
    return f"{count / 1e6:.0f} MB"


FEW = 1e-3
"""An upper bound on the density of NMT at batch 1, on 8 GPUs."""


def volumes() -> dict[str, dict[int, float]]:
    """Return, by scheme and number of GPUs, the time of all phases, each by the bytes of its busiest rank."""
    of = workload("NMT")
    values = of_values(of.profile, of.values)
    ours = ("balanced", "hierarchical_centralization", "holders")
    found = {name: (plan, of.profile if name == "OmniReduce" else values) for name, plan in PUBLISHED_SCHEMES.items()}
    del found["AllReduce"]
    found |= {name: (name, of.profile) for name in ours}
    return {name: {n: over_dense(scheme, profile, n) for n in SIZES} for name, (scheme, profile) in found.items()}


def over_dense(scheme: str, profile: Profile, ranks: int) -> float:
    dense = predict(plan_of(PUBLISHED_SCHEMES["AllReduce"], ranks), ranks, profile, None, WIRE).seconds
    return predict(plan_of(scheme, ranks), ranks, profile, None, WIRE).seconds / dense


def agsparse_loses() -> int:
    """Return the least number of GPUs among which AGsparse moves more than dense."""
    of = workload("NMT")
    values = of_values(of.profile, of.values)
    return next(n for n in range(2, 256) if over_dense(PUBLISHED_SCHEMES["AGsparse"], values, n) > 1)


def of_few() -> dict[str, float]:
    """Return SparCML's gains over others at batch 1 on 8 GPUs, where hardly a row has two holders."""
    profile = of_values(words(FEW, exponent_of("NMT"), rows_of("NMT")), workload("NMT").values)
    seconds = {
        name: predict(plan_of(PUBLISHED_SCHEMES[name], 8), 8, profile, None, WIRE).seconds
        for name in ("SparCML", "AGsparse", "Zen with COO")
    }
    return {name: found / seconds["SparCML"] - 1 for name, found in seconds.items()}


def summary(found: dict[str, dict[int, float]]) -> list[dict[str, Any]]:
    """Return the paper's statements on Figure 8 and the computed numbers."""
    said = {name: point["value"] for name, point in PUBLISHED["nmt"].items()}
    few, last, inverse = of_few(), SIZES[-1], 1 / density_of("NMT")
    best = min(found, key=lambda name: found[name][last])
    existing = ", ".join(f"{name} {found[name][last]:.2f}" for name in ("AGsparse", "SparCML", "OmniReduce"))
    worse = next((n for n in SIZES if found["SparCML"][n] > 1), None)
    omni, coo, at = found["OmniReduce"], found["Zen with COO"][last], f"at density {FEW:.1%}"
    loses, coo_below = f"above {said['agsparse_loses_above']} GPUs", f"{SPARSITY['nmt_below_dense_at_128']:.0%}"
    rows = (
        ("AGsparse moves more than dense", loses, f"from {agsparse_loses()} GPUs, 1 / d = {inverse:.1f}"),
        ("SparCML moves more than dense", said["sparcml"], f"from {worse} GPUs, of powers of two"),
        ("OmniReduce over dense", said["omnireduce"], f"{omni[64]:.2f} at 64, {omni[128]:.2f} at 128"),
        (f"existing schemes below dense at {last} GPUs", said["existing"], existing),
        (f"Balanced Parallelism with COO at {last}, below dense", coo_below, f"{1 - coo:.0%} (fitted)"),
        (f"the hash bitmap at {last}, below dense", "a curve", f"{1 - found['Zen'][last]:.0%}"),
        (f"without any index at {last}, below dense", f"{said['without_index']:.0%}", f"{1 - coo / 2:.0%}"),
        (f"zenc's best at {last}, `{best}`, below dense", "", f"{1 - found[best][last]:.0%}"),
        ("batch 1, 8 GPUs: SparCML before AGsparse", f"{said['few_agsparse']:.0%}", f"{few['AGsparse']:.0%} {at}"),
        ("the same before BP with COO", f"{said['few_balanced']:.0%}", f"{few['Zen with COO']:.0%} {at}"),
    )
    return [{"what": what, "published": published, "ours": ours} for what, published, ours in rows]
