"""Shipped schemes sum exactly, sparse and dense gradients, among every number of ranks they allow.

Real processes sum with all of them in ``test_golden_sums``.
"""

from __future__ import annotations

import re

import pytest
import torch

import zenc
from tests.support.cases import FORMATS, KINDS, dense_tensor, sparse_tensor, wrong_sums
from tests.support.local import collectives, run_all
from tests.support.shipped import SHIPPED, cases, plan_of_shipped
from zenc.language.files import locate
from zenc.plan.requirements import allowed

JOBS = "tests.runtime.jobs:"
PARAMETERS = [
    ("balanced", {"seed": 1}),
    ("double_binary_tree", {"chunks": 1}),
    ("double_binary_tree", {"chunks": 9}),
    ("kylix", {"d2": 1}),
    ("kylix", {"d2": 3}),
    ("kylix", {"d2": 2, "d3": 2}),
    ("torus2d", {"columns": 3}),
    ("torus2d", {"columns": 9}),
    ("zen_cluster", {"gpus": 1}),
    ("zen_cluster", {"gpus": 2}),
    ("zen_cluster", {"gpus": 3}),
]
"""Values of parameters other than the defaults."""


@pytest.mark.one_in(12)
@pytest.mark.parametrize("third", [0, *(pytest.param(other, marks=pytest.mark.slow) for other in (1, 2))])
@pytest.mark.parametrize(("name", "size"), cases((*range(1, 10), 16)))
def test_it_sums(name, size, third):
    """Ranks are threads; a third of the kinds of input is tried, in rotation with scheme and size."""
    ranks = collectives(zenc.compile(name, ranks=size), size)
    for turn in range((SHIPPED.index(name) + size + third) % 3, len(KINDS), 3):
        kind = KINDS[turn]
        width, units = (1, 5, 64)[turn % 3], (1, 63, 200)[(turn + size) % 3]
        make = dense_tensor if turn % 4 == 3 else sparse_tensor
        inputs = [make(kind, rank, size, units, width, torch.float32, turn) for rank in range(size)]
        results = run_all(ranks, [tensor.clone() for tensor in inputs], "mean" if turn % 2 else "sum")
        assert wrong_sums(results, inputs, divisor=size if turn % 2 else 1) == []


WITHOUT_TIERS = [name for name in SHIPPED if len(plan_of_shipped(name).tiers) == 1]


WITH_FORMATS = [name for name in WITHOUT_TIERS if not plan_of_shipped(name).announces]
"""Schemes with formats: by holders values travel without an index."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "size"), cases(range(1, 10), WITH_FORMATS))
def test_processes_with_every_format(nine, name, size):
    """Every pair of formats replaces those in the scheme's text, with inputs in rotation."""
    texts = [reformatted(name, push, pull) for push in FORMATS for pull in FORMATS]
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size, seconds=600)
    assert all(result == results[0] for result in results)


def reformatted(name: str, push: str, pull: str) -> str:
    text = locate(name).read_text(encoding="utf-8")
    for phase, format in (("push", push), ("pull", pull)):
        text, changed = re.subn(rf"^    {phase}: .*$", f"    {phase}: {format}", text, flags=re.MULTILINE)
        assert changed == 1
    return text


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), PARAMETERS)
def test_processes_with_other_parameters(nine, name, parameters):
    for size in allowed(plan_of_shipped(name, **parameters), range(1, 10)):
        results = nine.run(JOBS + "shipped", size=size, schemes=[(name, parameters)], turn=size, seconds=600)
        assert all(result == results[0] for result in results)
