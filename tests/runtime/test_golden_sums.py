"""Sums of all shipped schemes bit by bit, with their bytes and messages, against ``tests/golden/sums.json``.

Inputs are drawn by numpy's frozen ``RandomState`` and scaled by powers of two, so that they have the same bits on any
machine, and so that every order of adding them rounds differently. A difference is a change of results or traffic.
``pytest --update-golden`` writes the file anew.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
import torch.distributed as dist

import zenc
from tests.conftest import GOLDEN
from tests.runtime.jobs import DEADLINE, bits
from tests.support.cases import wrong_sums
from tests.support.shipped import SHIPPED, cases

SIZES = (1, 2, 3, 4, 6, 8)
SCHEMES: list[tuple[str, int, dict[str, int]]] = [
    *((name, size, {}) for name, size in cases(SIZES)),
    *(("zen_cluster", size, {"gpus": 2}) for size in (2, 4, 6)),
]
"""(name, ranks, parameters); a cluster of so few ranks has smaller machines."""
TRAFFIC = ("bytes_sent", "bytes_received", "messages_sent", "messages_received", "formats_sent", "formats_received")


@dataclass(frozen=True, slots=True)
class Case:
    """An input. ``held``: "some" units, "none" on the last rank or on "no rank", each "often", or "all" of them."""

    held: str
    dense: bool
    dtype: torch.dtype
    units: int
    width: int
    op: str = "sum"

    def __str__(self) -> str:
        layout = "dense" if self.dense else "sparse"
        return f"{self.op} {self.held} {layout} {str(self.dtype).removeprefix('torch.')} [{self.units}, {self.width}]"


CASES = (
    Case("some", False, torch.float32, 301, 5), Case("some", True, torch.float64, 130, 3, "mean"),
    Case("often", False, torch.float64, 97, 2), Case("often", False, torch.bfloat16, 64, 65),
    Case("none", False, torch.float16, 65, 1), Case("none", True, torch.float32, 1000, 1, "mean"),
    Case("no rank", False, torch.float32, 50, 4), Case("all", False, torch.bfloat16, 63, 3),
    Case("all", True, torch.float16, 129, 1),
)  # fmt: skip


def gradient(case: Case, rank: int, size: int) -> torch.Tensor:
    """Return the gradient [units, width] of ``rank``: sparse COO, uncoalesced and in any order, or dense."""
    random = np.random.RandomState(1000 * CASES.index(case) + rank)
    ids = random.permutation(case.units)
    if case.held in ("some", "often"):
        ids = ids[: 1 + case.units // 5]
    if case.held == "often":
        ids = np.repeat(ids, 3)[random.permutation(3 * len(ids))]
    if case.held == "no rank" or (case.held == "none" and rank == size - 1):
        ids = ids[:0]
    shape = len(ids), case.width
    numbers = random.randint(-(2**53), 2**53, shape) * 2.0 ** random.randint(-53, -46, shape)
    values = torch.from_numpy(numbers).to(torch.float64 if case.dtype == torch.float64 else torch.float32)
    indices = torch.from_numpy(ids.astype(np.int64))[None]
    made = torch.sparse_coo_tensor(indices, values.to(case.dtype), (case.units, case.width), check_invariants=False)
    return made.to_dense() if case.dense else made


def play(group: dist.ProcessGroup, schemes: list[tuple[str, dict[str, int]]]) -> list[list[tuple[str, Any]]]:
    """Return by scheme and case a fingerprint of this rank's sum, and its traffic by phase. Rank 0 checks the sums."""
    rank, size, found = group.rank(), group.size(), []
    for name, parameters in schemes:
        collective = zenc.load(zenc.compile(name, ranks=size, params=parameters), group, deadline=DEADLINE)
        found.append([_call(collective, case, rank, size) for case in CASES])
    return found


def _call(collective: zenc.Collective, case: Case, rank: int, size: int) -> tuple[str, Any]:
    total = collective.all_reduce(gradient(case, rank, size), case.op)
    if rank == 0:
        assert (
            wrong_sums([total], [gradient(case, r, size) for r in range(size)], size if case.op == "mean" else 1) == []
        )
    phases = collective.stats["phases"]
    return bits(total), {name: {key: phase[key] for key in TRAFFIC} for name, phase in phases.items()}


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def entry(ranks: list[list[tuple[str, Mapping[str, Any]]]]) -> dict[str, Any]:
    """Return the kept results of the calls of a scheme: all ranks end with the same sums.

    By phase they have the bytes and messages of all ranks in all calls; ``traffic`` is a fingerprint of each rank's in
    each call, and by format.
    """
    sums = [[told for told, _ in rank] for rank in ranks]
    assert all(other == sums[0] for other in sums), "ranks end with different sums"
    phases: dict[str, list[int]] = {}
    for rank in ranks:
        for _, traffic in rank:
            for name, phase in traffic.items():
                sent = phases.setdefault(name, [0, 0])
                sent[:] = sent[0] + phase["bytes_sent"], sent[1] + phase["messages_sent"]
    traffic = [[of_case for _, of_case in rank] for rank in ranks]
    return {**phases, "traffic": digest(traffic), "sums": [told[:16] for told in sums[0]]}


@pytest.mark.parametrize("sizes", [(3, 4), pytest.param(SIZES, marks=pytest.mark.slow)])
def test_sums_and_traffic_are_as_they_were(nine, assert_golden, sizes):
    assert {name for name, _, _ in SCHEMES} == set(SHIPPED)
    lines = [f'"cases": {json.dumps([str(case) for case in CASES])}']
    for size in sizes:
        chosen = [(name, parameters) for name, ranks, parameters in SCHEMES if ranks == size]
        told = nine.run("tests.runtime.test_golden_sums:play", size=size, schemes=chosen)
        for (name, parameters), *of_ranks in zip(chosen, *told, strict=True):
            given = ", ".join(f"{key} = {value}" for key, value in parameters.items())
            label = f"{name}({given})" if given else name
            lines.append(f"{json.dumps(f'{label} among {size}')}: {json.dumps(entry(of_ranks))}")
    if sizes == SIZES:
        assert_golden("sums.json", "{\n" + ",\n".join(lines) + "\n}")
    assert set(lines) <= {line.removesuffix(",") for line in (GOLDEN / "sums.json").read_text("utf-8").splitlines()}
