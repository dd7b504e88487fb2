"""Assumptions of predictions where nothing was measured."""

from __future__ import annotations

import pytest

from zenc.simulator.calibration import DEFAULTS, ESTIMATES, MEMORY, assumed, of_gpus
from zenc.topology.shapes import dgx, nodes, torus


def test_gpus_are_known_by_their_level_or_links() -> None:
    assert of_gpus(dgx(1)) and of_gpus(nodes(2, gpus=4)) and not of_gpus(torus(2, 2))
    assert assumed(dgx(1)).kernels == ESTIMATES.kernels == assumed(None, 1e9, "gpu").kernels
    assert assumed(torus(2, 2)).kernels == DEFAULTS.kernels == assumed(dgx(1), device="cpu").kernels


def test_what_is_assumed_is_said() -> None:
    assert assumed(None).note.startswith("not calibrated: links of 12.5 GB/s, 20 us a step")
    assert assumed(None, 1e9).bandwidth == 1e9 and "links" not in assumed(None, 1e9).note
    assert "GPU kernels by counts of their passes over 3 TB/s of memory" in assumed(dgx(1)).note


def test_kernels_of_gpus_take_what_their_passes_do() -> None:
    """A dense gradient of 214 million float32 is read 1.14 times to be packed, at 3 TB/s; 0.7 of it are written."""
    slots, held = 214e6, 11.1e6
    once = 4 * slots / MEMORY
    pack = ESTIMATES.pack.seconds(held, 4 * held, slots)
    expand = ESTIMATES.expand.seconds(2 * held, 8 * held, slots)
    assert pack == pytest.approx(1.14 * once, rel=0.1)
    assert expand == pytest.approx(0.7 * once, rel=0.1)
