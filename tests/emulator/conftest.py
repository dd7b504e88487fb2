"""The libraries, and ranks that call them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tests.emulator.libraries import Libraries
from tests.emulator.ranks import on_communicator


@pytest.fixture
def libraries() -> Iterator[Libraries]:
    made = Libraries()
    yield made
    made.fail_on("")


@pytest.fixture
def run(libraries) -> Callable[..., list[Any]]:
    """run(size, body): the results of body(rank) on all ranks of a new communicator."""
    return partial(on_communicator, libraries)
