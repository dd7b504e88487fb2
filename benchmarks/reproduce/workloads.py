"""Workloads that are trained: the tensors of each model, and how their gradients overlap on the published points.

    Workload = name dense units width clustered block? profile        # of float32 values

``profile`` is of rows of ``width`` values where gradients are sparse by nature, else of single values. ``clustered``:
the 8 GPUs of a machine train on data of their own and sum densely inside it; else they are one group of tensor
parallelism, and a machine is one rank. What the paper gives no number for is an assumption, and said in ``ASSUMED``.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from math import log

from benchmarks.reproduce import PUBLISHED, SPARSITY
from benchmarks.reproduce.overlap import core, core_with, of_machine, words, words_with
from zenc.gradients.profile import Profile

GPUS, MACHINES = 8, 16
BLOCK = 256
"""Values of a block of OmniReduce."""
NATURAL, PRUNED = ("LSTM", "DeepFM", "NMT"), ("Llama3.2-3B", "OPT-2.7B", "Gemma2-2B")
WIDTHS = {"LSTM": 512, "DeepFM": 16, "NMT": 512, "BERT": 768}
VALUES = {"Llama3.2-3B": 3.21e9, "OPT-2.7B": 2.65e9, "Gemma2-2B": 2.61e9, "BERT": 23e6}

ASSUMED = (
    ("rows", "LSTM and NMT: 512 values a row; DeepFM: 16. The paper has the number of values alone. 406M values of the "
     "LSTM are the 793,471 words of One Billion Word by 512."),
    ("values of the LLMs", "3.21, 2.65 and 2.61 billion (Llama3.2-3B, OPT-2.7B, Gemma2-2B), from their model "
     "cards. No ratio depends on them."),
    ("values", "float32, as in the paper's formulas. For the LLMs the last column also has bfloat16."),
    ("inside a machine", "one switch, 150 GB/s a GPU and direction: the 6 NVLinks of a V100. The paper says NVLink."),
    ("network", "one card a machine, which all its GPUs share; links carry their full bandwidth, without latency."),
    ("computation", "nothing is hidden behind it: a step is computation, then the synchronisation of all "
     "gradients. What is hidden in truth is part of the time that is fitted."),
    ("parts", "of the schemes whose parts are ranges: one range of the tensor for each machine, as in the paper's "
     "theory. What another order of ranges changes is in the table of times."),
    ("the dense layers", "LSTM, DeepFM and NMT: all-reduced densely beside the embedding, whatever the scheme."),
    ("top 5 %", "ranks choose independently, as often in the first eighth of a tensor as the paper says at "
     f"least. What they choose comes in runs: a block of {BLOCK} values holds any as often as so many independent "
     "values would, a power of two, that 30 % of OPT-2.7B's travel."),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Workload:
    """A model: ``dense`` is the number of values in layers that are reduced densely, ``values`` that of sparse ones.

    ``block`` is the number of units that a block of OmniReduce covers.
    """

    name: str
    dense: float
    values: float
    width: int
    clustered: bool
    block: int
    profile: Profile

    @property
    def machine(self) -> Profile:
        """The profile that a machine gives to the scheme across machines."""
        return of_machine(self.profile, GPUS) if self.clustered else self.profile

    @property
    def ranks(self) -> int:
        """The ranks on 16 machines: GPUs, or groups of tensor parallelism."""
        return MACHINES * GPUS if self.clustered else MACHINES


def rows_of(name: str) -> int:
    values: float = PUBLISHED["workloads"][name]["embedding"] if name in NATURAL else VALUES[name]
    return round(values / WIDTHS[name])


def density_of(name: str) -> float:
    return SPARSITY["bert_density"] if name == "BERT" else float(PUBLISHED["workloads"][name]["density"])


@lru_cache
def fitted(name: str) -> Profile:
    """Return the profile of rows, each model by its own published point; of LLMs by single values."""
    density = density_of(name)
    if name in PRUNED:
        return core(density, 0.0, round(VALUES[name]))
    units = rows_of(name)
    if name == "DeepFM":
        share = core_with(density, units, lambda p: float(p.union(GPUS)), SPARSITY["deepfm_density_of_8"])
        return core(density, share, units)
    return words(density, exponent_of(name), units)


@lru_cache
def exponent_of(name: str) -> float:
    """Return the exponent of Zipf's law, for the models of words."""
    density, units = density_of(name), rows_of(name)
    if name == "LSTM":
        return words_with(density, units, lambda p: -p.skewness(128), -SPARSITY["lstm_skewness_at_128"])
    return words_with(density, units, lambda p: float(p.union(128)), sum_of_128(name))


def sum_of_128(name: str) -> float:
    """Return the density of the sum of 128 GPUs: printed for BERT; for NMT from (d + d_128) 2 M = (1 - 36 %) 2 M."""
    if name == "BERT":
        return SPARSITY["bert_density_of_128"]
    return 1 - SPARSITY["nmt_below_dense_at_128"] - density_of(name)


def independent_values(profile: Profile) -> int:
    """Return the number of independent values that a block of neighbours is like, by the published share of blocks."""
    counts = [1 << k for k in range(BLOCK.bit_length())]
    return min(counts, key=lambda count: abs(log(float(profile.blocks(1, count)) / SPARSITY["blocks_of_opt"])))


@lru_cache
def workload(name: str, dtype: str = "f32") -> Workload:
    profile = replace(fitted(name), dtype=dtype)
    if name in PRUNED:
        return Workload(name, 0.0, VALUES[name], 1, False, independent_values(profile), profile)
    has, width = PUBLISHED["workloads"][name], WIDTHS[name]
    rows = replace(profile, width=width)
    return Workload(name, has["dense"], has["embedding"], width, True, max(1, BLOCK // width), rows)
