"""The verifier and an executor of its own agree on 10,000 schedules: right ones, and each with something changed."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.support.cases import COMBINATIONS, scheme_text
from tests.support.executor import Steps, Wrong, execute
from tests.support.plans import plan_of
from tests.support.steps import steps_of
from zenc.errors import VerificationError
from zenc.plan.model import Plan
from zenc.plan.rounds import Round, Rounds, expand
from zenc.plan.verify import prove

MUTATIONS = 10_000
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


def redirected(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    at = rng.randrange(len(step))
    others = [rank for rank in range(size) if rank not in (step[at].src, step[at].dst)]
    if others:
        step[at] = replace(step[at], dst=rng.choice(others))


def resent(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    step = rng.choice(steps)
    at = rng.randrange(len(step))
    others = [rank for rank in range(size) if rank not in (step[at].src, step[at].dst)]
    if others:
        step[at] = replace(step[at], src=rng.choice(others))


def moved(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    """Reordered: a move goes to another step."""
    step = rng.choice(steps)
    move = step.pop(rng.randrange(len(step)))
    rng.choice(steps).append(move)


def swapped(steps: Steps, rng: random.Random, size: int, parts: int) -> None:
    """Reordered: two steps change places."""
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


def verdicts(plan: Plan, rounds: Rounds, push: Steps, pull: Steps) -> tuple[bool, bool]:
    """(what the verifier says, what the executor says)"""
    mutated = Rounds(rounds.size, rounds.parts, (rounds_of(push, 0),), (rounds_of(pull, 0),), rounds.sends)
    try:
        prove(plan, mutated)
        verified = True
    except VerificationError:
        verified = False
    try:
        execute(push, pull, rounds.size, rounds.parts, plan.tiers[0].one_shot)
        executed = True
    except Wrong:
        executed = False
    return verified, executed


@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
def test_right_schedules_are_right_to_both(combination):
    plan = plan_of(scheme_text(*combination))
    for size in range(1, 10):
        rounds = expand(plan, size)
        assert verdicts(plan, rounds, steps_of(rounds.pushes[0]), steps_of(rounds.pulls[0])) == (True, True)


def test_verifier_and_executor_agree_on_every_mutation():
    """One to three changes in the push, the pull or both of a right schedule; the same verdict every time."""
    rng = random.Random(2025)
    known = {}
    counts: Counter[bool] = Counter()
    for turn in range(MUTATIONS):
        combination, size = COMBINATIONS[turn % len(COMBINATIONS)], rng.choice(SIZES)
        if (combination, size) not in known:
            plan = plan_of(scheme_text(*combination))
            known[combination, size] = plan, expand(plan, size)
        plan, rounds = known[combination, size]
        push, pull = steps_of(rounds.pushes[0]), steps_of(rounds.pulls[0])
        changes = []
        for _ in range(rng.choice((1, 1, 2, 3))):
            phase = rng.choice([steps for steps in (push, pull) if steps])
            phase[:] = [step for step in phase if step]
            if phase:
                changes.append(rng.choice(CHANGES))
                changes[-1](phase, rng, size, rounds.parts)
        verified, executed = verdicts(plan, rounds, push, pull)
        assert verified == executed, f"{turn}: {combination}, {size} ranks, {[c.__name__ for c in changes]}"
        counts[verified] += 1
    assert counts[False] > MUTATIONS // 2 and counts[True] > MUTATIONS // 100  # both verdicts are put to the test
