"""Errors of a call: each failure has one that says what to do."""

from __future__ import annotations

import pytest

from zenc.errors import SynchronisationError, TensorError
from zenc.runtime.gpu.call_args import CallArgs, failure_of
from zenc.wire.constants import CallOutcome

OF_THE_TENSOR = (CallOutcome.OUT_OF_MEMORY, CallOutcome.BAD_UNIT, CallOutcome.NOT_OWNED, CallOutcome.NOT_CAPTURABLE)
"""Outcomes caused by the caller's tensor."""


@pytest.mark.parametrize("outcome", [outcome for outcome in CallOutcome if outcome is not CallOutcome.DONE])
def test_failures_are_errors(outcome):
    call = CallArgs(outcome=outcome, peer=3, message=b"it stopped")
    error = failure_of(call, "balanced")
    assert isinstance(error, TensorError if outcome in OF_THE_TENSOR else SynchronisationError)
    (diagnostic,) = error.diagnostics
    assert "it stopped (scheme balanced)" in diagnostic.message
    assert ("rank 3" in diagnostic.message) == (outcome is CallOutcome.DIFFERENT_CALLS)
