"""Call sequences of artifacts: tables by default, C++ on demand, and only those that this zenc generates."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import zenc
from tests.support.artifacts import refused
from tests.support.cases import same_bits, sparse_tensor
from tests.support.emulated_gpu import emulated_ranks
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import Artifact, load_artifact
from zenc.codegen.call_program import CODE, DATA
from zenc.runtime.gpu.sequence import load_sequence

WAYS = {"table": DATA, "compiled": CODE}


@pytest.fixture(scope="module", params=["balanced", "holders"])
def artifact(request: pytest.FixtureRequest) -> Artifact:
    return zenc.compile(request.param, ranks=3, target="cuda", arch="none")


def ids_of(caught: pytest.ExceptionInfo[zenc.ZencError]) -> list[str]:
    return [diagnostic.id for diagnostic in caught.value.diagnostics]


def test_both_are_saved_and_loaded(artifact, tmp_path):
    again = load_artifact(artifact.save(tmp_path / "saved"))
    assert again == artifact and set(again.sequences) == {CODE, DATA} <= set(again.manifest["files"])
    data = json.loads(again.sequences[DATA])
    assert [of["rank"] for of in data["ranks"]] == [0, 1, 2]
    operations = {statement[0] for of in data["ranks"] for statement in of["statements"]}
    assert {"send", "receive", "exchange"} <= operations


def test_only_gpus_and_a_known_number_of_ranks_have_them():
    assert not zenc.compile("balanced", target="cuda", arch="none").sequences
    assert not zenc.compile("balanced", ranks=3).sequences
    assert not zenc.compile("agsparse", ranks=65, target="cuda", arch="none").sequences


@pytest.mark.parametrize("way", ["table", pytest.param("compiled", marks=pytest.mark.slow)])
def test_either_is_played(artifact, way, monkeypatch):
    monkeypatch.setenv("ZENC_SEQUENCE", way)
    inputs = [sparse_tensor("random", rank, 3, 70, 3, torch.float32, 1) for rank in range(3)]
    ranks = emulated_ranks(artifact, 3)
    found = run_all([rank.collective for rank in ranks], [tensor.clone() for tensor in inputs])
    played = load_sequence(artifact, 3, 0, 60)
    assert (played.program is None) == (way == "compiled")
    host = zenc.compile(artifact.plan.scheme, ranks=3)
    assert same_bits([*found, *run_all(collectives(host, 3), inputs)])


@pytest.mark.parametrize("name", [CODE, DATA])
def test_an_edited_one_is_refused(artifact, name, tmp_path):
    saved = artifact.save(tmp_path / "saved")
    text = artifact.sequences[name]
    (saved / name).write_text(text + " ")
    assert refused(saved) == "artifact-damaged"
    (saved / name).unlink()
    assert refused(saved) == "artifact-damaged"


@pytest.mark.parametrize("way", WAYS)
def test_one_that_says_something_else_than_the_plan_is_not_played(artifact, way, monkeypatch):
    """The manifest has the right checksum, as if somebody had signed it anew."""
    monkeypatch.setenv("ZENC_SEQUENCE", way)
    name = WAYS[way]
    text = artifact.sequences[name]
    others = [text.replace("1, 1", "1, 2", 1), text.replace("merge", "fill", 1), text[:-9], "", "[]", "{}", "[" * 9999]
    for other in others:
        assert other != text
        with pytest.raises(zenc.ArtifactError, match=r"error\[artifact-damaged\]"):
            load_sequence(replace(artifact, sequences={**artifact.sequences, name: other}), 3, 0, 60)


def test_there_is_no_third_way(artifact, monkeypatch):
    monkeypatch.setenv("ZENC_SEQUENCE", "text")
    with pytest.raises(zenc.ZencError, match="ZENC_SEQUENCE is table or compiled, not 'text'") as caught:
        load_sequence(artifact, 3, 0, 60)
    assert ids_of(caught) == ["bad-environment"]
