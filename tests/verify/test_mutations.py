"""The verifier and an independent executor agree on schedules: right ones, and thousands of mutants."""

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from math import prod

import numpy as np
import pytest

from tests.support.cases import COMBINATIONS, INNER, scheme_text, tiered_text
from tests.support.executor import Steps, Wrong, execute, losses_of, phases_of, shapes_of
from tests.support.plans import plan_of
from zenc.errors import VerificationError
from zenc.plan.ir import Plan
from zenc.plan.unroll import Round, Rounds, Unrolled, expand
from zenc.scheme.compression import Fixed, Integers, Rounded, Sign, Top
from zenc.verify.proof import prove

MUTATIONS = pytest.mark.parametrize("turns", [200, pytest.param(10_000, marks=pytest.mark.slow)])
SIZES = range(2, 8)


def rounds_of(steps: Steps, line: int) -> tuple[Round, ...]:
    made = []
    for step in steps:
        if step:
            columns = np.array([[m.src, m.dst, m.part, m.part, m.origin, line] for m in step], dtype=np.int64).T
            made.append(Round(*columns))
    return tuple(made)


def dropped(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    del step[rng.randrange(len(step))]


def doubled(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    move = rng.choice(rng.choice(steps))
    rng.choice(steps).append(move)


def redirected(steps: Steps, rng: random.Random, size: int, parts: int, end: str = "dst") -> None:
    step = rng.choice(steps)
    at = rng.randrange(len(step))
    others = [rank for rank in range(size) if rank not in (step[at].src, step[at].dst)]
    if others:
        step[at] = replace(step[at], **{end: rng.choice(others)})


def resent(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    redirected(steps, rng, size, parts, "src")


def moved(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    move = step.pop(rng.randrange(len(step)))
    rng.choice(steps).append(move)


def swapped(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    first, second = rng.randrange(len(steps)), rng.randrange(len(steps))
    steps[first], steps[second] = steps[second], steps[first]


def of_another_part(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    at = rng.randrange(len(step))
    step[at] = replace(step[at], part=rng.randrange(parts))


def of_another_origin(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    at = rng.randrange(len(step))
    step[at] = replace(step[at], origin=rng.randrange(-1, size))


CHANGES = (dropped, doubled, redirected, resent, moved, swapped, of_another_part, of_another_origin)


def verdicts(plan: Plan, rounds: Rounds, pushes: list[Steps], pulls: list[Steps]) -> tuple[bool, bool]:
    phases = zip(plan.phases, (*pushes, *pulls), strict=True)
    mutated = replace(rounds, phases=tuple(Unrolled(phase, rounds_of(steps, 0)) for phase, steps in phases))
    try:
        prove(plan, mutated)
        verified = True
    except VerificationError:
        verified = False
    try:
        execute(pushes, pulls, shapes_of(plan, rounds.size), losses_of(plan))
        executed = True
    except Wrong:
        executed = False
    return verified, executed


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_right_schedules_are_right_to_both(combination):
    plan = plan_of(scheme_text(*combination))
    for size in range(1, 10):
        rounds = expand(plan, size)
        assert verdicts(plan, rounds, *phases_of(rounds)) == (True, True)


def disagreements(
    cases: Callable[[int, random.Random], tuple[Plan, Rounds]], turns: int, changes_: tuple[int, ...] = (1, 1, 2, 3)
) -> tuple[list[str], Counter[bool]]:
    """Return changes in some phases of a right schedule with two verdicts, and how often each verdict was given."""
    rng, wrong = random.Random(2025), list[str]()
    counts: Counter[bool] = Counter()
    for turn in range(turns):
        plan, rounds = cases(turn, rng)
        pushes, pulls = phases_of(rounds)
        changes = []
        for _ in range(rng.choice(changes_)):
            phase = rng.choice([steps for steps in (*pushes, *pulls) if steps])
            phase[:] = [step for step in phase if step]
            if phase:
                changes.append(rng.choice(CHANGES))
                changes[-1](phase, rng, rounds.size, rounds.parts)
        verified, executed = verdicts(plan, rounds, pushes, pulls)
        tiers = [(tier.communication, tier.aggregation.value, tier.partition.value) for tier in plan.tiers]
        if verified != executed:
            wrong.append(f"{turn}: {tiers}, {rounds.size} ranks, {[c.__name__ for c in changes]}")
        counts[verified] += 1
    return wrong, counts


@MUTATIONS
def test_verifier_and_executor_agree_on_every_mutation(turns):
    @cache
    def known(combination: tuple[str, str, str], size: int) -> tuple[Plan, Rounds]:
        plan = plan_of(scheme_text(*combination))
        return plan, expand(plan, size)

    wrong, counts = disagreements(
        lambda turn, rng: known(COMBINATIONS[turn % len(COMBINATIONS)], rng.choice(SIZES)), turns
    )
    assert wrong == []
    assert counts[False] > turns // 2 and counts[True] > turns // 100, "both verdicts are put to the test"


@cache
def known(text: str, size: int) -> tuple[Plan, Rounds]:
    plan = plan_of(text, scheme="tiered")
    return plan, expand(plan, size)


@MUTATIONS
def test_they_agree_on_every_mutation_of_tiers(turns):
    """Two and three tiers are incremental or one-shot, whole or cut, with inner ones inside."""

    def cases(turn: int, rng: random.Random) -> tuple[Plan, Rounds]:
        sizes = rng.choice(((2, 2), (2, 3), (3, 2), (2, 4), (4, 2), (2, 2, 2)))
        inner = [rng.choice(INNER) for _ in sizes[1:]]
        return known(tiered_text(sizes[:-1], (*inner, COMBINATIONS[turn % len(COMBINATIONS)])), prod(sizes))

    wrong, counts = disagreements(cases, turns)
    assert wrong == []
    assert counts[False] > turns // 2 and counts[True] > turns // 100, "both verdicts are put to the test"


LOSSES = (None, Rounded("f16"), Integers(8), Sign(), Fixed(8))


@MUTATIONS
def test_they_agree_on_every_mutation_of_what_is_encoded(turns):
    """Codes of every class and selections are in any phase; schedules have tiers among them, right and changed ones."""

    def cases(turn: int, rng: random.Random) -> tuple[Plan, Rounds]:
        sizes = rng.choice(((2,), (3,), (5,), (8,), (9,), (2, 2), (3, 2), (2, 2, 2)))
        inner = [rng.choice(INNER) for _ in sizes[1:]]
        formats = [rng.choice((("auto", "auto"), ("dense", "coo"), ("coo", "block(8)"))) for _ in sizes]
        tiers = (*inner, COMBINATIONS[turn % len(COMBINATIONS)])
        plan, rounds = known(tiered_text(sizes[:-1], tiers, formats), prod(sizes))
        phases = [
            replace(each, code=rng.choice(LOSSES), select=rng.choice(((), (), (Top(0.01),)))) for each in plan.phases
        ]
        unrolled = [Unrolled(phase, played) for phase, (_, played) in zip(phases, rounds.phases, strict=True)]
        return replace(plan, phases=tuple(phases)), replace(rounds, phases=tuple(unrolled))

    wrong, counts = disagreements(cases, turns // 3, (0, 0, 1, 2))
    assert wrong == []
    assert counts[False] > (turns // 3) // 2 and counts[True] > (turns // 3) // 100, "both verdicts are put to the test"
