"""Costs of schemes on the paper's clusters, by zenc's own cost model: bytes on the wire alone, as the paper has it.

Kernels, latencies and what software adds to a message are zero here, and links carry what they are sold for. What is
left is the plan of each scheme, the profile of the gradient, and links that messages share.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

from benchmarks.reproduce import PUBLISHED
from benchmarks.reproduce.overlap import of_values
from benchmarks.reproduce.workloads import BLOCK, GPUS, MACHINES, Workload
from zenc.api import compile, compile_text
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.plan.ir import Plan
from zenc.scheme.library import shipped
from zenc.simulator.calibration import bandwidth_only
from zenc.simulator.predict import Prediction, predict
from zenc.topology.model import Topology
from zenc.topology.shapes import nodes

NVLINK = 6 * 25e9
"""Bytes a second and direction of a V100's 6 NVLinks."""
WIRE = bandwidth_only("the wire alone")

PUBLISHED_SCHEMES = {
    "AllReduce": "dense_ring", "AGsparse": "agsparse", "SparCML": "sparcml", "Sparse PS": "sparse_ps",
    "OmniReduce": "blocks", "Zen with COO": "zen_coo", "Zen": "zen",
}  # fmt: skip
"""Names that the paper gives to schemes -> the scheme that comes with zenc, or one of OWN."""
OWN = """
scheme blocks {
    "omnireduce, with blocks of as many units as BLOCK says."
    communication: point_to_point  aggregation: one_shot  partition: parallelism  balance: imbalanced
    push: BLOCK  pull: BLOCK
}
scheme zen_coo {
    "zen, before the hash bitmap."
    communication: point_to_point  aggregation: incremental  partition: parallelism
    balance: balanced by hierarchical_hash
    push: coo  pull: coo
}
"""
OURS = ("balanced", "hierarchical_centralization", "dense_ring")
"""Schemes of zenc across machines, which send rows where gradients have them."""
LIBRARY = {entry["name"] for entry in shipped()}
HASHES = ("Zen", "Zen with COO")


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one synchronisation: ``seconds`` with hashing, and the bytes that cross the busiest card one way."""

    seconds: float
    bytes: float


@lru_cache
def plan_of(scheme: str, ranks: int, block: int = 1, tiers: bool = False) -> Plan:
    """Return the plan of a scheme, alone or behind a dense one inside machines; a block of one unit is a bitmap."""
    if scheme in LIBRARY and not tiers:
        return compile(scheme, ranks=ranks, target="plan").plan
    text = OWN.replace("BLOCK", f"block({block})" if block > 1 else "bitmap")
    text += f"scheme tiers {{ tier node({GPUS}): dense_ring tier cluster: {scheme} }}" if tiers else ""
    name = "tiers" if tiers else scheme
    return compile_text(text, name="reproduction", ranks=ranks, target="plan", scheme=name).plan


@lru_cache
def cluster(ranks: int, gbits: float) -> Topology:
    """Return the testbed: machines with ``gbits`` Gbit/s, of GPUs with NVLink, or each one rank."""
    gpus = ranks // MACHINES
    return nodes(MACHINES, gpus=gpus, bandwidth=NVLINK, latency=0, network_bandwidth=gbits * 1e9 / 8, network_latency=0)


@lru_cache
def cost(scheme: str, of: Workload, gbits: float) -> Cost:
    """Return the cost of the sparse layers of ``of`` by a published scheme, in single values, or OmniReduce's blocks.

    Its parts are ranges of the machines, one each, as in the paper's theory.
    """
    profile = _runs(of) if scheme == "OmniReduce" else of_values(of.machine, of.values)
    found = _predicted(PUBLISHED_SCHEMES[scheme], MACHINES, of, profile, gbits)
    return Cost(found.seconds + inside(of) + (hashing(of) if scheme in HASHES else 0.0), found.carried)


def by_gpu(scheme: str, of: Workload, gbits: float) -> Cost:
    """Return the cost with ranges of the GPUs first: each machine then has one in every eighth of the tensor."""
    runs = replace(_runs(of), ranges=of.profile.ranges)
    profile = runs if scheme == "OmniReduce" else of_values(of.profile, of.values)
    found = _predicted(PUBLISHED_SCHEMES[scheme], of.ranks, of, profile, gbits, tiers=True)
    return Cost(found.seconds + (hashing(of) if scheme in HASHES else 0.0), found.carried)


def evenly(scheme: str, of: Workload, gbits: float) -> Cost:
    """Return the cost where all parts are loaded alike."""
    profile = _runs(of) if scheme == "OmniReduce" else of_values(of.machine, of.values)
    classes = tuple((p, share / len(profile.ranges)) for range_ in profile.ranges for p, share in range_)
    even = replace(profile, ranges=(classes,))
    found = _predicted(PUBLISHED_SCHEMES[scheme], MACHINES, of, even, gbits)
    return Cost(found.seconds + inside(of) + (hashing(of) if scheme in HASHES else 0.0), found.carried)


def inside(of: Workload) -> float:
    """Return seconds of a dense all-reduce inside a machine."""
    if not of.clustered:
        return 0.0
    plan = plan_of(PUBLISHED_SCHEMES["AllReduce"], GPUS)
    return predict(plan, GPUS, uniform(1.0, round(of.values)), None, replace(WIRE, bandwidth=NVLINK)).seconds


@lru_cache
def ours(of: Workload, gbits: float) -> dict[str, Cost]:
    """Return costs of zenc's own schemes, by name; behind a dense one in machines, and among all GPUs where apt.

    Each is charged what hashing takes Zen, for the selection of its units.
    """
    behind = "dense_ring + " if of.clustered else ""
    flat = ("holders", "balanced") if of.clustered else ("holders",)
    found = {name: _predicted(name, of.ranks, of, of.profile, gbits) for name in flat}
    for name in OURS:
        found[behind + name] = _predicted(name, of.ranks, of, of.profile, gbits, of.clustered)
    more = {name: 0.0 if name.endswith("dense_ring") else hashing(of) for name in found}
    return {name: Cost(each.seconds + more[name], each.carried) for name, each in found.items()}


def best(of: Workload, gbits: float) -> tuple[str, Cost]:
    return min(ours(of, gbits).items(), key=lambda pair: pair[1].seconds)


def hashing(of: Workload) -> float:
    """Return seconds of hashing, in proportion to a machine's nonzero values: the paper has them for one tensor."""
    known = PUBLISHED["hashing"]
    values = of.values * of.machine.density
    return float(known["seconds"] * values / (known["values"] * known["density"]))


def dense_layers(of: Workload, gbits: float) -> float:
    """Return the seconds of the layers that every scheme leaves to a dense all-reduce."""
    if not of.dense:
        return 0.0
    return _predicted(PUBLISHED_SCHEMES["AllReduce"], of.ranks, of, uniform(1.0, round(of.dense)), gbits, True).seconds


def _predicted(
    scheme: str, ranks: int, of: Workload, profile: Profile, gbits: float, tiers: bool = False
) -> Prediction:
    return predict(plan_of(scheme, ranks, of.block, tiers), ranks, profile, cluster(ranks, gbits), WIRE)


def _runs(of: Workload) -> Profile:
    """Return the gradient as OmniReduce meets it: in rows, or in runs of which ``of.block`` values make a block."""
    width = max(of.width, BLOCK // of.block)
    return replace(of.machine, units=round(of.values / width), width=width)
