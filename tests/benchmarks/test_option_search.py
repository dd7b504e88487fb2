"""Espresso's algorithms against brute force, and against compressing nothing or everything."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.strategies.decision_tree import Option, Tree
from benchmarks.strategies.option_search import ChosenOptions, alike, offload, seconds_of, select
from benchmarks.strategies.option_table import Compressor, Machines, OptionTable, TaskCosts, compresses
from tests.support.fuzz import tried
from zenc.strategy.simulation.step import StepTensor, TrainingStep
from zenc.strategy.simulation.timeline import Timeline, after_gap

MACHINES = Machines(8, 8, latency=20e-6, inside=12e9, across=25e9 / 8, host=20e9 / 8)
DGC = Compressor("dgc", ratio=0.02, encode=356e-6, decode=34e-6)
ON_GPU = OptionTable(Tree(("gpu",), ("gpu",)).options(), TaskCosts(MACHINES, DGC))

sizes = st.sampled_from([1 << 10, 1 << 18, 1 << 21, 1 << 24])
steps = st.lists(st.tuples(sizes, st.integers(0, 8)), min_size=1, max_size=8).map(
    lambda drawn: TrainingStep("drawn", tuple(StepTensor(str(i), n, ms / 1000) for i, (n, ms) in enumerate(drawn)))
)


@given(steps)
@settings(max_examples=tried(30), deadline=None)
def test_a_choice_is_never_worse_than_nothing_compressed_and_takes_what_it_says(step: TrainingStep) -> None:
    choice = select(step, ON_GPU)
    assert choice.seconds == pytest.approx(seconds_of(step, ON_GPU, choice.options), rel=1e-9)
    plain = seconds_of(step, ON_GPU, alike(step, ON_GPU, compressed=False))
    assert choice.seconds <= plain * (1 + 1e-9)


def test_three_tensors_are_chosen_for_as_well_as_by_brute_force() -> None:
    step = TrainingStep("three", tuple(StepTensor(str(i), n, 0.004) for i, n in enumerate([1 << 22, 1 << 24, 1 << 21])))
    each = [after_gap(ON_GPU.of_size(tensor.numel).matrices, tensor.gap) for tensor in step.tensors]
    timeline = Timeline(np.stack([made[0] for made in each]))
    best = np.inf
    for first, second in product(*each[:2]):
        timeline.change(0, first)
        timeline.change(1, second)
        best = min(best, timeline.with_each(2, each[2]).min())
    assert select(step, ON_GPU).seconds == pytest.approx(best, rel=1e-9)


@given(steps)
@settings(max_examples=tried(20), deadline=None)
def test_an_offload_is_the_best_that_lemma_1_allows(step: TrainingStep) -> None:
    """The host is fast enough to be worth it for the first few tensors of each group."""
    table = OptionTable(ON_GPU.options, TaskCosts(replace(MACHINES, host=80e9), DGC))
    choice = select(step, table)
    found = offload(step, table, choice)
    best = min(seconds_of(step, table, options) for options in moved_first(step, choice))
    assert found.seconds == pytest.approx(best, rel=1e-9)
    assert found.seconds == pytest.approx(seconds_of(step, table, found.options), rel=1e-9)


def moved_first(step: TrainingStep, choice: ChosenOptions) -> Iterator[list[Option]]:
    """Yield every way to move the first tensors of each size and compressing option to the host."""
    groups: dict[tuple[int, Option], list[int]] = {}
    for at, option in enumerate(choice.options):
        if compresses(option):
            groups.setdefault((step.tensors[at].numel, option), []).append(at)
    for counts in product(*(range(len(group) + 1) for group in groups.values())):
        options = list(choice.options)
        for group, count in zip(groups.values(), counts, strict=True):
            for at in group[:count]:
                options[at] = tuple(replace(task, device="cpu") if task.device else task for task in options[at])
        yield options


@pytest.mark.parametrize("numel", [1 << 12, 1 << 20, 1 << 26])
def test_what_no_option_dominates_has_the_quickest_of_all_in_it(numel: int) -> None:
    """Each of the 4,341 options is tried alone in a step, and before a tensor that waits for no link."""
    table = OptionTable(Tree().options(), TaskCosts(MACHINES, DGC))
    alone = TrainingStep("alone", (StepTensor("a", numel, 0.0),))
    every = min(seconds_of(alone, table, [option]) for option in table.options[::13])
    assert table.of_size(numel).matrices.max(axis=(1, 2)).min() <= every * (1 + 1e-9)
