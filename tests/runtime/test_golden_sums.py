"""Sums of all shipped schemes bit by bit, with their bytes and messages, against ``tests/golden/sums.json``.

A difference is a change of results or traffic. ``pytest --update-golden`` writes the file anew.
"""

from __future__ import annotations

import json

import pytest

from tests.conftest import GOLDEN
from tests.runtime.golden_sums import CASES, SCHEMES, SIZES, entry
from tests.support.shipped import SHIPPED


@pytest.mark.parametrize("sizes", [(3, 4), pytest.param(SIZES, marks=pytest.mark.slow)])
def test_sums_and_traffic_are_as_they_were(nine, assert_golden, sizes):
    assert {name for name, _, _ in SCHEMES} == set(SHIPPED)
    lines = [f'"cases": {json.dumps([str(case) for case in CASES])}']
    for size in sizes:
        chosen = [(name, parameters) for name, ranks, parameters in SCHEMES if ranks == size]
        told = nine.run("tests.runtime.golden_sums:play", size=size, schemes=chosen)
        for (name, parameters), *of_ranks in zip(chosen, *told, strict=True):
            given = ", ".join(f"{key} = {value}" for key, value in parameters.items())
            label = f"{name}({given})" if given else name
            lines.append(f"{json.dumps(f'{label} among {size}')}: {json.dumps(entry(of_ranks))}")
    if sizes == SIZES:
        assert_golden("sums.json", "{\n" + ",\n".join(lines) + "\n}")
    assert set(lines) <= {line.removesuffix(",") for line in (GOLDEN / "sums.json").read_text("utf-8").splitlines()}
