"""Sizes and shares that the paper names, as they follow from its definitions, and from the costs here."""

from __future__ import annotations

from typing import Any

from benchmarks.reproduce.cost import cost, hashing
from benchmarks.reproduce.published import PUBLISHED, SPARSITY
from benchmarks.reproduce.workloads import MACHINES, NATURAL, fitted, workload

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
