"""A scheme that chooses, on real ranks, and versions: the same on all, right sums, and notices about others."""

import logging
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
import torch.distributed as dist

import zenc
from tests.support.ranks import Ranks, RanksFailed
from tests.support.shipped import plan_of_shipped
from zenc.gradients.profile_generators import uniform
from zenc.runtime.call.layout import layout_of
from zenc.runtime.choice import sampling
from zenc.runtime.choice.sampling import Probe, SparsityProbe
from zenc.runtime.group import versions
from zenc.runtime.group.versions import RUN_WITH, sources_digest, told_of_zenc, untested, warn_if_untested
from zenc.scheme.model import Unit
from zenc.simulator.calibration import DEFAULTS, ESTIMATES, Calibration
from zenc.simulator.predict import predict

JOBS = "tests.runtime.jobs:"
BY_PREDICTION = "scheme mine { choose(every = 4, patience = 2, trials = 0) from [sparcml, dense_ring] }"
BY_TRIALS = "scheme mine { choose(every = 5, trials = 2) from [balanced, holders, sparcml, dense_ring] }"


def alike(results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what all ranks found, which must be the same."""
    assert all(result == results[0] for result in results)
    return results[0]


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_ranks_choose_alike(four: Ranks, size: int) -> None:
    found = alike(four.run(JOBS + "chosen", size=size, text=BY_TRIALS, densities=[0.01] * 16))
    decision = found["decisions"][0]  # a machine that stalls later leads to new trials
    assert decision["tensor"] == "table"
    assert decision["scheme"] == min(decision["measured"], key=decision["measured"].get)
    assert found["ran"][decision["call"] - 1] == decision["scheme"]
    assert found["ran"][0] == "balanced"
    assert decision["afterwards"] > 0


def test_it_follows_the_gradient(four: Ranks) -> None:
    """Gradients go from 0.1 % to all units and back, and prediction alone switches once each way."""
    regimes = [0.001] * 12 + [1.0] * 16 + [0.001] * 16
    found = alike(four.run(JOBS + "chosen", text=BY_PREDICTION, densities=regimes, width=64))
    schemes = [decision["scheme"] for decision in found["decisions"]]
    assert schemes == ["sparcml", "dense_ring", "sparcml"], found["decisions"]
    assert found["ran"][:12] == ["sparcml"] * 12, "few ranks, few bytes: recursive doubling"
    assert found["ran"][20:28] == ["dense_ring"] * 8
    assert found["ran"][-4:] == ["sparcml"] * 4


@pytest.mark.parametrize(("on_gpu", "assumed"), [(False, DEFAULTS), (True, ESTIMATES)])
def test_what_is_predicted_is_of_the_device_that_computes(
    on_gpu: bool, assumed: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampling, "allreduce_max", lambda among, predictions, purpose: predictions)
    plans, ranks = [plan_of_shipped("balanced"), plan_of_shipped("dense_ring")], 4
    everyone: Any = SimpleNamespace(size=ranks)
    looker = SparsityProbe("table", layout_of(torch.zeros(2000, 8), Unit.ROW), plans, everyone, on_gpu)
    found = looker.models(Probe(np.full(2000, ranks)))
    expected = [predict(plan, ranks, uniform(1.0, 2000, 8), None, assumed).seconds for plan in plans]
    assert [each.fixed + each.transfer for each in found] == pytest.approx(expected)


def test_a_candidate_that_one_rank_can_not_build(four: Ranks, tmp_path: Path) -> None:
    """Every rank learns of the candidate by name, and none waits for another."""
    text = "scheme mine { choose(trials = 1) from [balanced, sparcml] }"
    folder = zenc.compile_text(text).save(tmp_path / "mine")
    found = four.run(JOBS + "without_compiler", size=3, folder=str(folder), empty=str(tmp_path / "cache"))
    assert found[0] == ["balanced", "compiler-missing", "group-broken"]
    assert found[1] == found[2] == ["balanced", "peer-failed", "group-broken"]


def test_ranks_with_other_choices_are_told(four: Ranks) -> None:
    with pytest.raises(RanksFailed) as caught:
        four.run(JOBS + "other_choices", size=2)
    assert {error.diagnostics[0].id for error in caught.value.errors.values()} == {"different-schemes"}


@pytest.mark.parametrize("away", [0, 3])
def test_a_rank_that_stays_away_is_named_with_the_tensor_and_the_time(two: Ranks, away: int) -> None:
    """A missing rank is named in the first call, which is sampled, and in a trial, which the ranks begin together."""
    found = two.run(JOBS + "left_alone", calls=away)
    assert found[0].startswith("deadline: rank 0 waited ") and "s in vain for rank 1 to " in found[0]
    assert "table" in found[0]


PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
OWN = f"zenc {zenc.__version__} (sources {sources_digest()[:8]})"
OTHER = {
    "version": f"zenc 0.0.9 (sources {sources_digest()[:8]})",
    "sources": f"zenc {zenc.__version__} (sources 01234567)",
    "switch": f"{OWN} with ZENC_SOCKETS=0",
    "setting": f"{OWN} with ZENC_SHARED_MEMORY=maybe",
}
"""Properties of a rank, by what differs."""


@pytest.mark.parametrize("version", ["2.13.0+cpu", "2.13.9", "2.8.0+cu128", "2.11.0", torch.__version__])
def test_versions_that_were_run(version):
    assert untested(version) == ""


@pytest.mark.parametrize("version", ["2.3.1", "2.16.0a0+git1234", "2.130.0", "3.0", "main"])
def test_another_version_is_told_once_and_used(version, caplog):
    with caplog.at_level(logging.WARNING, "zenc"):
        warn_if_untested(version)
        warn_if_untested(version)
    (record,) = caplog.records
    assert f"not run with torch {version} yet" in record.getMessage()


def test_the_oldest_that_was_run_is_what_the_package_asks_for():
    oldest = re.search(r'"torch>=([\d.]+)"', PYPROJECT.read_text(encoding="utf-8"))
    assert oldest and RUN_WITH[0].startswith(oldest[1]) and tuple(sorted(RUN_WITH, key=_numbers)) == RUN_WITH


def _numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


def load_with_another(group: dist.ProcessGroup, what: str, other: int) -> list[str]:
    """Return the error of loading where one rank runs another zenc; then a sum in a group where none does."""
    own = dist.new_group(list(range(group.size())))
    changes = {
        "version": mock.patch.object(versions, "__version__", "0.0.9"),
        "sources": mock.patch.object(versions, "sources_digest", lambda: "01234567" * 8),
        "switch": mock.patch.dict(os.environ, ZENC_SOCKETS="0"),
        "setting": mock.patch.dict(os.environ, ZENC_SHARED_MEMORY="maybe"),
    }
    found = []
    with changes[what] if group.rank() == other else mock.patch.dict(os.environ):
        try:
            zenc.load("balanced", own, deadline=20)
        except zenc.SynchronisationError as error:
            (told,) = error.diagnostics
            found = [told.id, told.message, *told.notes]
    again = zenc.load("balanced", dist.new_group(list(range(group.size()))), deadline=20)
    return [*found, str(float(again.all_reduce(torch.ones(5)).sum()))]


@pytest.mark.parametrize(("what", "other"), [("version", 1), ("sources", 3), ("switch", 2), ("setting", 1)])
def test_ranks_with_another_zenc_are_told_before_anything_else(four: Any, what: str, other: int) -> None:
    rest = ", ".join(str(rank) for rank in range(4) if rank != other)
    expected = [
        "different-versions", f"rank 0 runs {OWN}, and rank {other} {OTHER[what]}", f"ranks {rest}: {OWN}",
        f"ranks {other}: {OTHER[what]}", "20.0",
    ]  # fmt: skip
    assert four.run("tests.runtime.test_autoselect:load_with_another", what=what, other=other) == [expected] * 4


def test_the_digest_is_of_all_that_makes_code_and_messages(tmp_path: Path) -> None:
    assert told_of_zenc() == OWN and re.fullmatch(r"[0-9a-f]{64}", sources_digest())
    found = [sources_digest()]
    for name, text in (("a.h", "int x;"), ("a.h", "int y;"), ("b.h", "int y;"), ("a.h", "int x;")):
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_text(text)
        with mock.patch.object(versions, "directory", lambda _: tmp_path):
            found.append(sources_digest.__wrapped__())
    assert found[1] == found[4] and len(set(found)) == 4
    read = list[Path]()
    with mock.patch.object(Path, "read_bytes", lambda path: read.append(path) or b""):
        sources_digest.__wrapped__()
    assert {path for path in Path(zenc.__file__).parent.rglob("*.py") if "share" not in path.parts} <= set(read)
