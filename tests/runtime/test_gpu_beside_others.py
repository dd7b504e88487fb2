"""Calls beside another communicator's messages on one GPU, as DDP's: in any order, and where only one finds room."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
import torch

import zenc
from tests.emulator.libraries import INT64, Libraries
from tests.emulator.ranks import SUM, Rank, on_communicator
from tests.support.emulated_gpu import emulated_ranks
from zenc.runtime.call.collective import Collective

OWN = np.arange(5)
GRADIENTS = [torch.eye(6)[rank] for rank in range(2)]


@pytest.fixture
def libraries():
    made = Libraries()
    yield made
    made.limit_messages(0)


def side_by_side(libraries: Libraries, ours: list[Collective], theirs_first: set[int]) -> list[tuple[str, list[int]]]:
    """Return the outcomes of a call and of another communicator's all-reduce, by rank: each begins behind the other."""
    both_began = threading.Barrier(2)

    def meet(device: int) -> None:
        """Wait until one of the two is on the GPU, on both ranks; it stays there if it is not the same one."""
        while len(theirs_first) == 1 and not libraries.messages(device):
            time.sleep(0.001)
        both_began.wait(20)

    def body(rank: Rank) -> tuple[str, list[int]]:
        theirs, gradient = np.zeros_like(OWN), GRADIENTS[rank.number].clone()

        def begin_theirs() -> None:
            rank.all_reduce(OWN, theirs, INT64, SUM)

        if rank.number in theirs_first:
            begin_theirs()
            meet(rank.number)
        call = ours[rank.number].all_reduce(gradient, async_op=True)
        if rank.number not in theirs_first:
            meet(rank.number)
            begin_theirs()
        try:
            call.wait()
            outcome = str(gradient.int().tolist())
        except zenc.SynchronisationError as error:
            outcome = error.diagnostics[0].id
        assert rank.wait() == 0
        return outcome, theirs.tolist()

    found = on_communicator(libraries, 2, body)
    for problem in found:
        if isinstance(problem, Exception):
            raise problem
    return found


@pytest.mark.parametrize("places", [0, 2])
@pytest.mark.parametrize("theirs_first", [set(), {0}, {1}, {0, 1}], ids=str)
def test_two_communicators_in_any_order(libraries, places, theirs_first):
    """Each rank may begin with either communicator, as long as there is room for both."""
    ranks = [rank.collective for rank in emulated_ranks(zenc.compile("balanced", ranks=2), 2)]
    libraries.limit_messages(places)
    for outcome, theirs in side_by_side(libraries, ranks, theirs_first):
        assert outcome == "[1, 1, 0, 0, 0, 0]" and theirs == (2 * OWN).tolist()


def test_without_room_for_both_the_deadline_ends_the_call(libraries):
    """Each rank's first communicator waits for the other rank's second; the call gives way, and the other goes on."""
    ranks = [rank.collective for rank in emulated_ranks(zenc.compile("balanced", ranks=2), 2, deadline=2)]
    libraries.limit_messages(1)
    outcomes, theirs = zip(*side_by_side(libraries, ranks, {0}), strict=True)
    assert "deadline" in outcomes and set(outcomes) <= {"deadline", "peer-lost"}
    assert theirs == ((2 * OWN).tolist(),) * 2
