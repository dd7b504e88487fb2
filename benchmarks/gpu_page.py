"""The tables of benchmarks/reports/gpus.md, from what the benchmarks of GPUs have written to docs/benchmarks/gpu.

    python -m benchmarks.gpu_page --write

``calls.json`` is of ``python -m benchmarks.gpu_call``, ``calls-link.json`` of the same with ``--link '3600 Gbit/s'``
and ``calls-bfloat16.json`` with ``--dtype bfloat16``, ``schemes.json`` of ``python -m benchmarks.gpu_schemes --json
FILE``, ``timeline-2.json`` of ``python -m benchmarks.gpu_timeline`` on two ranks.
"""

from typing import Any

from benchmarks.pages import DOCS, LEFT, RIGHT, ROOT, Part, json_of, show_or_write, table

DATA = DOCS / "benchmarks" / "gpu"
MARKS = "<!-- tables: python -m benchmarks.gpu_page --write -->", "<!-- end of tables -->"
PART = Part(ROOT / "benchmarks" / "reports" / "gpus.md", *MARKS)
WIRE = "Memcpy DtoD"
"""Copies that stand for the wire: messages of ranks that share a GPU, or that are replayed."""


def kernels_of(of: dict[str, Any]) -> float:
    """Return milliseconds of the kernels of a call, without the copies that stand for the wire."""
    return float(sum(kernel["milliseconds"] for kernel in of["kernels"] if not kernel["name"].startswith(WIRE)))


def call_rows(measured: list[dict[str, Any]]) -> list[list[str]]:
    """Return a row for each workload: the call and its kernels, and those of a dense one in reads."""
    return [
        [
            of["workload"],
            f"{of['call']:.3f}",
            f"{kernels_of(of):.3f}",
            f"{kernels_of(of) / of['read']:.1f}" if of["workload"].startswith("dense") else "",
        ]
        for of in measured
    ]


def scheme_rows(measured: list[dict[str, Any]], units: int) -> list[list[str]]:
    """Return a row for each scheme that sums tensors of ``units`` values right: kernels in reads of a rank's tensor."""
    right = (of for of in measured if of["units"] == units and not of["wrong"])
    return [[f"`{of['scheme']}`", f"{kernels_of(of) / of['read'] / of['ranks']:.1f}"] for of in right]


def tables() -> str:
    calls, schemes = _read("calls.json"), _read("schemes.json")["measured"]
    of_calls = table(
        ["workload", "call, ms", "kernels, ms", "reads"], [LEFT, *[RIGHT] * 3], call_rows(calls["measured"])
    )
    units = max(each["units"] for each in schemes)
    of_schemes = table(["scheme", "reads"], [LEFT, RIGHT], scheme_rows(schemes, units))
    shared = f"{units:,} float32 values, 2 ranks on one GPU:"
    return "\n\n".join([f"{calls['machine']}:", of_calls, by_seconds(calls), shared, of_schemes, timeline()])


def by_seconds(by_bytes: dict[str, Any]) -> str:
    """Return a sentence about the dense call whose formats are chosen by seconds, beside that by bytes."""
    link = _read("calls-link.json")
    dense, other = (of["measured"][-1] for of in (link, by_bytes))
    assert dense["workload"] == other["workload"]
    took = f"{kernels_of(dense):.3f} ms of kernels are {kernels_of(dense) / dense['read']:.2f} reads"
    came = f"{dense['received']:,} bytes come for {other['received']:,}"
    half = _read("calls-bfloat16.json")["measured"][-1]
    ours, read = kernels_of(half), half["read"]
    return (
        f"The dense call with `--link '{link['link']}'`, as of NVLink: {took}, and {came}. "
        f"In bfloat16 its kernels take {ours:.3f} ms, {ours / read:.1f} reads of half as many bytes."
    )


def timeline() -> str:
    """Return a sentence about a step of DDP with zenc, and its timeline."""
    found = _read("timeline-2.json")
    drawn = "\n".join(f"    {line}" for line in found["timeline"])
    took = f"{found['step_ms']:.1f} ms, {found['silent_step_ms']:.1f} ms of it without any message"
    return f"A step of DDP, {took}; {found['beside']:.0%} of zenc's time there is other work beside it:\n\n{drawn}"


def _read(name: str) -> dict[str, Any]:
    return json_of(DATA / name)


if __name__ == "__main__":
    show_or_write(__doc__, PART, tables)
