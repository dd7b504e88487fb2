"""Texts of the objects that users hold: a line, with what they are and nothing that is long."""

from __future__ import annotations

import re

import pytest
import torch

import zenc
from tests.support.local import collectives
from zenc.gradients import profile_generators
from zenc.runtime.call.call_queue import Work

DIGEST = "[0-9a-f]{12}"


def ended(fails: bool) -> Work:
    def call() -> torch.Tensor:
        if fails:
            raise MemoryError
        return torch.ones(1)

    work = Work()
    work.run(call)
    return work


def state() -> zenc.ZencState:
    return zenc.ZencState(collectives(zenc.compile("balanced", ranks=1), 1)[0])


@pytest.mark.parametrize(
    ("made", "shown"),
    [
        (lambda: zenc.compile("balanced"), f"<zenc.Artifact balanced for any number of ranks, target cpu, .*{DIGEST}>"),
        (lambda: zenc.compile("auto", ranks=4), f"<zenc.Artifact auto for 4 ranks, target cpu, digest {DIGEST}>"),
        (lambda: zenc.check("balanced"), "<zenc.Report balanced, proved for 1 to 16 ranks, 0 warnings>"),
        (lambda: zenc.check("zen_cluster"), "<zenc.Report zen_cluster, proved for 8, 16, 24 ranks, 0 warnings>"),
        (
            lambda: profile_generators.zipf(0.02, 1.05, 50_000, 64, "f32"),
            "<zenc.Profile zipf: 50000 x 64 f32, density 0.02>",
        ),
        (lambda: Work(), "<zenc.Work under way on cpu>"),
        (lambda: ended(fails=False), "<zenc.Work ended on cpu>"),
        (lambda: ended(fails=True), "<zenc.Work failed with MemoryError on cpu>"),
        (lambda: zenc.Profiler(every=7), "<zenc.Profiler every 7, of 65536 units: 0 parameters so far>"),
        (state, f"<zenc.ZencState of <zenc.Collective balanced {DIGEST} rank 0 of 1>, 0 parameters so far>"),
    ],
)  # fmt: skip
def test_a_line(made, shown):
    found = repr(made())
    assert re.match(shown, found) and "\n" not in found and len(found) < 150, found
