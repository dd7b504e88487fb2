"""DDP's own two ways to sum a gradient, predicted by the simulator that predicts schemes.

    sparse    gloo's all-reduce of a sparse tensor: around a ring each rank gathers what all others have, in three
              rounds (how many, int64 indices, values), and adds one rank's after another; NCCL has none
    dense     the ring all-reduce of the whole tensor, by gloo or NCCL

The time of adding was measured as calls of ``torch-coo`` in the lab, beside their wire: 60 ns a unit of each addition,
1.6 times the time that torch takes to sort an element into its unit, which ``zenc calibrate`` measures everywhere.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from math import ceil

import numpy as np

from zenc.gradients.profile import Profile
from zenc.language.files import load_file, load_text, locate
from zenc.plan.ir import Plan
from zenc.plan.lower import lower
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import NO_KERNELS, Calibration
from zenc.simulator.network import Network
from zenc.simulator.predict import Prediction, predict_on
from zenc.wire.constants import DTYPE_BYTES

GATHER = "scheme ddp_sparse { communication: ring aggregation: one_shot partition: centralization push: coo pull: coo }"
"""A scheme in which each rank passes on the segments from the one before, n - 1 times."""
ROUNDS = 3
INDEX_MORE = 4
"""Bytes that torch's int64 index has beyond zenc's."""
ADDED = 1.6
"""The time of a unit in torch's sum of two sparse tensors, over that of sorting an element into its unit."""
ADDED_BYTES = 6e9
"""Bytes a second of rows that are added: each addition makes a new tensor."""
NCCL_STEP = 5e-6
"""Seconds of a step of NCCL's ring, at the most: a small all-reduce of 8 GPUs takes some 30 us."""


def sparse(profile: Profile, way: Network, calibration: Calibration) -> Prediction:
    """Predict an all-reduce of a sparse tensor by gloo."""
    more = ceil(INDEX_MORE / DTYPE_BYTES[profile.dtype])
    step, message = ROUNDS * calibration.step, ROUNDS * calibration.message
    wire = replace(profile, width=profile.width + more)
    found = predict_on(_plan(sparse=True), wire, way, replace(calibration, **NO_KERNELS, step=step, message=message))
    adding = _adding(profile, way.size, calibration) * calibration.slowdown(way.size)
    return replace(found, scheme="DDP, sparse", seconds=found.seconds + adding, kernels=found.kernels + adding)


def dense(units: float, dtype: str, way: Network, calibration: Calibration, on_gpu: bool = False) -> Prediction:
    """Predict an all-reduce of ``units`` values, by gloo or NCCL."""
    step = min(calibration.step, NCCL_STEP) if on_gpu else calibration.step
    wire = replace(calibration, **NO_KERNELS, step=step, message=0.0 if on_gpu else calibration.message)
    whole = Profile("dense", max(1, round(units)), 1, dtype, None, (((1.0, 1.0),),))
    found = predict_on(_plan(sparse=False), whole, way, wire)
    return replace(found, scheme="DDP, dense")


def _adding(profile: Profile, size: int, calibration: Calibration) -> float:
    """Return the seconds of adding all others' tensors, one after another: each time the sum so far is written anew."""
    ranks = np.arange(1, size)
    units = profile.units * float((profile.union(ranks) + profile.density).sum())
    each = calibration.coarser.seconds(units, 0.0, units) * ADDED
    return each + units * profile.unit_bytes / ADDED_BYTES


@cache
def _plan(sparse: bool) -> Plan:
    return lower(resolve(load_text(GATHER, "ddp_sparse.zen") if sparse else load_file(locate("dense_ring")))[0])
