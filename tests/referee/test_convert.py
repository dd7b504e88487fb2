"""Plans of others made plans of zenc: they sum exactly, dense and sparse, and what can't be is told."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import zenc
from tests.support import foreign
from tests.support.foreign import XmlPlan, step
from tests.support.local import collectives, run_all
from zenc.errors import PlanError, SchemeError
from zenc.pipeline.foreign import compile_plan

TEXTS = {
    "ring": foreign.ring_allreduce(3),
    "all pairs": foreign.allpairs_allreduce(4),
    "te-ccl": foreign.written(foreign.teccl_ring(3)),
}
OTHERS = {
    "doubling": foreign.pair_allreduce(4),
    "gathered in a ring": foreign.ring_allgather(3, False),
    "forestcoll": foreign.forestcoll_trees(4),
    "mscclpp": foreign.written(foreign.mscclpp_pair()),
}


def written(text: str, folder: Path) -> Path:
    path = folder / "plan"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("name", TEXTS)
def test_it_sums_exactly(name: str, tmp_path: Path) -> None:
    artifact = compile_plan(written(TEXTS[name], tmp_path))
    size = artifact.plan.size
    assert size is not None
    ranks, draw = collectives(artifact, size), torch.Generator().manual_seed(1)
    for density in (1.0, 0.1):
        dense = [torch.randint(-99, 99, (300,), generator=draw).float() for _ in range(size)]
        given = [each * (torch.rand(300, generator=draw) < density) for each in dense]
        wanted = torch.stack(given).sum(0)
        for result in run_all(ranks, [each.clone() for each in given]):
            assert torch.equal(result.to_dense() if result.is_sparse else result, wanted)
        sparse = run_all(ranks, [each.to_sparse() for each in given])
        assert all(torch.equal(result.to_dense(), wanted) for result in sparse)


@pytest.mark.parametrize("name", OTHERS)
def test_it_is_a_plan_of_zenc_that_is_proved(name: str, tmp_path: Path) -> None:
    artifact = compile_plan(written(OTHERS[name], tmp_path), "plan")
    assert artifact.proved_sizes == (artifact.plan.size,)
    assert artifact.plan.doc.startswith("An all-")


def test_partial_sums_that_are_sent_alone_are_told(tmp_path: Path) -> None:
    """GPU 0 relays to GPU 2 what came from GPU 1, and adds nothing to it."""
    plan = XmlPlan("allreduce", 3, 1, 3)
    relay = plan.block(0, 2, 1)
    step(relay, "rcs", ("s", 1), ("s", 1))
    step(plan.block(1, 0), "s", ("i", 0), ("s", 1))
    summing = plan.block(2, -1, 0)
    step(summing, "rrc", ("i", 0), ("i", 0), signals=True)
    own = plan.block(0, 2, 2, 1)
    step(own, "s", ("i", 0), ("i", 0))
    step(own, "r", ("i", 0), ("i", 0))
    back = plan.block(2, 0, 0, 1)
    step(back, "rrcs", ("i", 0), ("i", 0), dep=(0, 0), signals=True)
    step(plan.block(2, 1, -1, 2), "s", ("i", 0), ("i", 0), dep=(1, 0))
    last = plan.block(1, -1, 2, 2)
    step(last, "r", ("i", 0), ("i", 0), dep=(0, 0))
    plan.gpus[1][0][0].set("hasdep", "1")
    with pytest.raises(PlanError) as error:
        compile_plan(written(plan.text(), tmp_path))
    message = error.value.diagnostics[0].message
    assert "chunk 0: gpu 0 sends the contributions of gpu 1, and not all that it holds" in message


def test_other_collectives_are_told(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match=r"error\[not-convertible\]"):
        compile_plan(written(foreign.ring_reducescatter(3), tmp_path))


def test_open_returns_a_plan_of_another_program(tmp_path: Path) -> None:
    path = written(TEXTS["ring"], tmp_path)
    found = zenc.open(path)
    assert found.kind == "plan" and repr(found) == f"<zenc.PlanFile {path}>"
    assert found.check().plan.goal.size == 3
    assert found.compile("plan").plan.digest == compile_plan(path, "plan").plan.digest
    for asked in (lambda: zenc.open(path, ranks=3), found.explain, found.draw):
        with pytest.raises(SchemeError, match="a plan of another program, which has no"):
            asked()
    path.write_text(TEXTS["ring"].replace("<step", "<stop", 1), encoding="utf-8")
    with pytest.raises(PlanError):
        zenc.open(path).check()
