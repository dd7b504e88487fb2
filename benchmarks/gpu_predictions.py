"""Constants of the cost model from measurements of one H100, and predictions by them for 8 GPUs.

    python -m benchmarks.gpu_predictions             # prints all tables
    python -m benchmarks.gpu_predictions --write     # writes them into docs/reference/gpu_predictions.md

``constants`` derives what ``zenc/simulator/calibration.py`` has of GPUs from ``docs/benchmarks/gpu``: calls.json, one
rank of 8 under ``balanced`` kernel by kernel, and schemes.json, two ranks that share the GPU. A speed is the bytes of
the rows that a kernel moves over its time, fitted to both workloads of rows by relative errors; that of ``merge`` also
to the sums of ``dense_ring``. Seconds a slot are what the dense workload took beyond the bytes of its values at that
speed. ``hashed`` is what packing and expanding took in ``zen`` over ``balanced`` beside it.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.gpu_page import DATA, kernels_of
from benchmarks.pages import DOCS, LEFT, RIGHT, Part, json_of, show_or_write, table
from benchmarks.predicted import plan_of
from zenc.gradients.profile import Profile
from zenc.gradients.profile_generators import uniform
from zenc.simulator.calibration import ESTIMATES
from zenc.simulator.network import Switch
from zenc.simulator.predict import predict, predict_on
from zenc.simulator.training import ddp

MARKS = "<!-- tables: python -m benchmarks.gpu_predictions --write -->", "<!-- end of tables -->"
PART = Part(DOCS / "reference" / "gpu_predictions.md", *MARKS)
RANKS, SHARING = 8, 2
"""Ranks of the calls in calls.json, and those that share the GPU in schemes.json."""
DENSE, ROWS, SELECTED = 0.052, 0.01, 0.01
"""Densities of a rank's gradient; the share that `topk_a2a` selects."""
SHARED_UNITS = 50_000_000
KERNELS = {
    "pack": ("zenc_pack_values", "zenc_place", "zenc_mark_units", "zenc_mark_dense"),
    "merge": ("zenc_sum", "zenc_merge"),
    "expand": ("zenc_expand", "zenc_mark_found"),
    "index": ("zenc_encode_index", "zenc_decode", "zenc_mark_listed", "zenc_begin_listed", "zenc_clear_index"),
}
"""Kernel of the cost model -> how the names of the CUDA kernels that do it begin."""
STEPS, MESSAGES = 2, 2 * (RANKS - 1)
"""Steps of the empty call, and the messages in it that a rank sends and receives."""
SCHEMES = ("balanced", "kylix", "torus2d", "double_binary_tree", "sparse_ps", "sparcml_split", "agsparse", "sparcml",
           "hierarchical_centralization", "zen", "dense_ring")  # fmt: skip
LINKS = {"NVLink": 450e9, "400 Gbit/s": 50e9, "100 Gbit/s": 12.5e9, "25 Gbit/s": 3.125e9}
"""Bytes a second of a GPU's link, each way."""
NCCL_BUS = 370e9, 480e9
"""Bus bandwidth of NCCL's all-reduce over the NVLinks of 8 H100, as it is published; not measured by us."""
PREDICTED = ("balanced", "zen", "agsparse", "dense_ring")
WORKLOADS = {
    "214,000,000 float32, 5.2 %": uniform(DENSE, 214_000_000, 1),
    "2,000,000 rows x 128 float32, 1 %": uniform(ROWS, 2_000_000, 128),
}


def measured(name: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json_of(DATA / name)["measured"]
    return found


def seconds(of: dict[str, Any], *begins: str) -> float:
    """Return the seconds of those kernels of the call ``of`` whose names begin with one of ``begins``."""
    return float(sum(each["milliseconds"] for each in of["kernels"] if each["name"].startswith(begins))) / 1e3


def shared(scheme: str) -> dict[str, Any]:
    """Return the measured call of ``scheme`` by ranks that share the GPU, on ``SHARED_UNITS`` values."""
    return next(each for each in measured("schemes.json") if (each["scheme"], each["units"]) == (scheme, SHARED_UNITS))


def constants() -> dict[str, float]:
    """Return the measured constants of ``ESTIMATES`` by name: seconds or bytes a second; ``hashed`` is a ratio."""
    empty, rows, wide, dense = measured("calls.json")
    union = {density: 1 - (1 - density) ** RANKS for density in (DENSE, ROWS)}
    shapes = ((rows, 2_000_000, 512), (wide, 800_000, 4096))
    came = [units * ROWS * bytes for _, units, bytes in shapes]
    summed = [units * union[ROWS] * bytes for _, units, bytes in shapes]
    ring = seconds(shared("dense_ring"), "zenc_sum") / SHARING
    speeds = {
        "pack": _speed(came, [seconds(of, "zenc_place_once") for of, *_ in shapes]),
        "merge": _speed([*came, 4 * SHARED_UNITS], [*(seconds(of, "zenc_merge") for of, *_ in shapes), ring]),
        "expand": _speed(summed, [seconds(of, "zenc_expand") for of, *_ in shapes]),
    }
    units = 214_000_000
    held = {"pack": DENSE, "merge": DENSE, "expand": union[DENSE]}
    slot = {
        name: (seconds(dense, *KERNELS[name]) - 4 * units * held[name] / speed) / units
        for name, speed in speeds.items()
    }
    of_sets = 2 * (RANKS - 1) / RANKS + 1  # written and read in the push; in the pull written once for all, and read
    wire = sum(each["milliseconds"] for each in empty["kernels"]) - kernels_of(empty)
    call = (empty["call"] - wire) / 1e3 - STEPS * ESTIMATES.step - MESSAGES * ESTIMATES.message
    both = 1 - (1 - DENSE) ** SHARING
    values = SHARED_UNITS * (4 * DENSE / speeds["pack"] + 4 * both / speeds["expand"])
    hashed, mixed = (
        sum(seconds(shared(name), *KERNELS[each]) / SHARING for each in ("pack", "expand")) - values
        for name in ("zen", "balanced")
    )
    return {
        **{f"speed of {name}": speed for name, speed in speeds.items()},
        **{f"{name} a slot": each for name, each in slot.items()},
        "index a slot": seconds(dense, *KERNELS["index"]) / (of_sets * units),
        "hashed": hashed / mixed,
        "call": call,
    }


def format_costs() -> dict[str, float]:
    """Return the picoseconds of an index at both ends, by the fields of ``zenc.wire.formats.GPU_COSTS``.

    Two ranks share the GPU. Lists are measured at two densities each, which gives the time of a word and of a slot.
    ``zen`` pushes ``coo`` and pulls bitmaps, as many slots as ``sparse_then_dense`` pushes in ``coo``.
    """
    slots, both = SHARED_UNITS / SHARING, 1 - (1 - DENSE) ** SHARING
    words = slots / 64

    def index(scheme: str) -> float:
        return 1e12 * seconds(shared(scheme), *KERNELS["index"]) / SHARING

    def solved(few: float, few_took: float, many: float, many_took: float) -> tuple[float, float]:
        each = (many_took - few_took) / ((many - few) * slots)
        return (few_took - each * few * slots) / words, each

    listed = index("sparse_then_dense")
    bitmap = index("zen") - listed
    of_word, coo = solved(SELECTED, index("topk_a2a"), DENSE, listed)
    push = index("balanced") - bitmap
    pull = sum(index(name) for name in ("kylix", "torus2d")) / 2 - push
    word, elias_fano = solved(DENSE, push, both, pull)
    return {"bitmap": bitmap / words, "search": (of_word + word) / 2, "coo": coo, "elias_fano": elias_fano}


def _speed(bytes: Sequence[float], took: Sequence[float]) -> float:
    """Return the bytes a second that fit best, by least squares of relative errors."""
    each = [size / time for size, time in zip(bytes, took, strict=True)]
    return sum(one * one for one in each) / sum(each)


def compared() -> list[tuple[str, float, float]]:
    """Return a row for each workload and scheme: its name, and measured and predicted ms of a rank's kernels."""
    rows = uniform(ROWS, 2_000_000, 128), uniform(ROWS, 800_000, 1024), uniform(DENSE, 214_000_000, 1)
    calls = [
        (f"`balanced`, {of['workload']}", kernels_of(of), _kernels("balanced", RANKS, profile))
        for of, profile in zip(measured("calls.json")[1:], rows, strict=True)
    ]
    tensor = uniform(DENSE, SHARED_UNITS, 1)
    return calls + [
        (f"`{name}`, {SHARED_UNITS:,}, 2 ranks", kernels_of(shared(name)) / SHARING, _kernels(name, SHARING, tensor))
        for name in SCHEMES
    ]


def _kernels(scheme: str, ranks: int, profile: Profile) -> float:
    """Return a rank's predicted milliseconds, with the measured kernels of a call of one value in place of ``call``."""
    found = predict(plan_of(scheme), ranks, profile, None, ESTIMATES).kernels - ESTIMATES.call
    return 1e3 * found + kernels_of(measured("calls.json")[0])


def predictions(profile: Profile) -> list[list[str]]:
    """Return a row for each link: milliseconds of NCCL's dense all-reduce, and of schemes, among 8 GPUs."""
    rows = []
    for name, rate in LINKS.items():
        way, known = Switch(RANKS, rate), replace(ESTIMATES, bandwidth=rate)
        dense = ddp.dense(profile.units * profile.width, profile.dtype, way, known, on_gpu=True)
        by_seconds = replace(plan_of("balanced"), link=round(1e12 / rate))
        plans = [*map(plan_of, PREDICTED), by_seconds]
        found = [predict_on(plan, profile, way, known).seconds for plan in plans]
        best = min(dense.seconds, *found)
        cells = [f"**{1e3 * each:.4g}**" if each == best else f"{1e3 * each:.4g}" for each in (dense.seconds, *found)]
        rows.append([name, *cells])
    return rows


def tables() -> str:
    heads = ["link of a GPU", "NCCL, dense", *(f"`{name}`" for name in PREDICTED), "`balanced`, formats by seconds"]
    ways = [LEFT, *[RIGHT] * (len(heads) - 1)]
    parts = [f"{name}, ms a call:\n\n{table(heads, ways, predictions(of))}" for name, of in WORKLOADS.items()]
    low, high = (2 * (RANKS - 1) / RANKS * 4 * 214_000_000 / bus * 1e3 for bus in reversed(NCCL_BUS))
    parts.append(
        f"At the published bus bandwidth of NCCL over NVLink, {NCCL_BUS[0] / 1e9:.0f} to {NCCL_BUS[1] / 1e9:.0f} GB/s, "
        f"the dense all-reduce of 214,000,000 float32 takes {low:.2f} to {high:.2f} ms."
    )
    known = [[name, _text(name, value)] for name, value in constants().items()]
    parts.append(f"Constants:\n\n{table(['constant', 'value'], [LEFT, RIGHT], known)}")
    rows = [[name, f"{was:.3f}", f"{found:.3f}", f"{found / was - 1:+.0%}"] for name, was, found in compared()]
    heads = ["a rank's kernels", "measured, ms", "by the model, ms", "off"]
    parts.append(f"Kernels, without messages and the host:\n\n{table(heads, [LEFT, *[RIGHT] * 3], rows)}")
    return "\n\n".join(parts)


def _text(name: str, value: float) -> str:
    if name.startswith("speed"):
        return f"{value / 1e12:.3g} TB/s"
    if name == "call":
        return f"{value * 1e6:.3g} us"
    return f"{value:.3g}" if name == "hashed" else f"{value * 1e12:.3g} ps"


if __name__ == "__main__":
    show_or_write(__doc__, PART, tables)
