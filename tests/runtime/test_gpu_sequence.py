"""Call sequences of artifacts, and collectives on emulated GPUs that go on after a rank has died."""

import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch

import zenc
from tests.faults.gpu.play import left_since, threads_and_files
from tests.runtime.test_lifetimes import UNITS, gradient
from tests.support.artifacts import refused
from tests.support.cases import same_bits, sparse_tensor
from tests.support.emulated_gpu import EmulatedGpu, emulated_ranks
from tests.support.local import collectives, run_all
from tests.support.meeting import Meeting, communicator_of
from zenc.codegen.artifact import Artifact, load_artifact
from zenc.codegen.call_program import CODE, DATA
from zenc.errors import SynchronisationError
from zenc.runtime import load
from zenc.runtime.backend_api import Backend
from zenc.runtime.call.collective import Collective
from zenc.runtime.gpu.backend import GpuBackend
from zenc.runtime.gpu.sequence import load_sequence
from zenc.runtime.group import process_groups
from zenc.runtime.group.communicator import Communicator

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


CALLS, DEADLINE = 2, 20.0
GROUPS = [(0, 1, 2, 3), (3, 0, 2), (0, 4, 2, 3)]
DYING = 1


class Member:
    """A process with its own GPU, in one group after another."""

    def __init__(self, number: int, scheme: str) -> None:
        self.number, self.scheme, self.gpu = number, scheme, EmulatedGpu(number)
        self.collective: Collective | None = None
        self.loaded: list[int] = []
        """Number of modules loaded on the GPU when each group was made."""

    def join(self, meeting: Meeting, rank: int) -> None:
        """Make the group ``meeting``, and the collective once more, as ``zenc.load`` and ``rebuild`` do."""
        self.gpu.make_current()
        group: Any = meeting, rank
        if self.collective is None:
            obtain, on = (lambda size: zenc.compile(self.scheme, ranks=size)), torch.device("cpu")
            self.collective = load.load_collective(obtain, self._backend, group, DEADLINE, on=on)
        else:
            self.collective.communicator.close(DEADLINE)  # as communicator_for does with the old ones
            self.collective = self.collective.rebuild(group)
        self.collective.backend_on(torch.device("cpu"))
        self.loaded.append(self.gpu.calls("cuModuleLoadData"))

    def _backend(self, of: Artifact, _: torch.device, communicator: Communicator, *rest: Any) -> Backend:
        self.gpu.make_current()
        return GpuBackend(of, self.gpu, communicator, *rest[:2])  # shared memory is for calls on CPUs

    def summed(self, generation: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return residuals before, the sums of the calls [calls, units], and residuals after."""
        assert self.collective is not None
        self.gpu.make_current()
        before = self.kept()
        gradients = [gradient(self.number, generation, call) for call in range(CALLS)]
        sums = [self.collective.all_reduce(each, name="w").clone() for each in gradients]
        return before, torch.stack(sums), self.kept()

    def kept(self) -> torch.Tensor:
        collective = self.collective
        known = collective is not None and collective.keeper is not None and "w" in collective.keeper.counts()
        return collective.residual("w") if collective is not None and known else torch.zeros(UNITS)

    def fails(self) -> str:
        """Return the message of the error of a call that one rank does not make."""
        assert self.collective is not None
        self.gpu.make_current()
        with pytest.raises(SynchronisationError) as caught:
            self.collective.all_reduce(torch.ones(UNITS), name="w")
        assert caught.value.diagnostics[0].id == "peer-lost"
        return caught.value.diagnostics[0].message

    def dies(self) -> None:
        """End as a process does, of which NCCL tells the peers."""
        assert self.collective is not None
        (nccl,) = self.collective.communicator.nccl
        nccl.library.abort_communicator(nccl.handle)


def together(jobs: Sequence[Callable[[], Any]]) -> list[Any]:
    with ThreadPoolExecutor(len(jobs)) as pool:
        return [each.result(60) for each in [pool.submit(job) for job in jobs]]


def regroup(members: dict[int, Member], group: tuple[int, ...]) -> None:
    meeting = Meeting(len(group))
    together([partial(members[one].join, meeting, rank) for rank, one in enumerate(group)])


@pytest.fixture(autouse=True)
def meetings(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (load, process_groups):
        monkeypatch.setattr(module, "communicator_for", lambda group, _: communicator_of(*group))


@pytest.mark.parametrize("scheme", ["balanced", "topk_a2a"])
def test_the_others_go_on_fewer_and_then_more(scheme: str) -> None:
    """Each generation sums gradients and residuals of its members, and nobody loads a module of kernels again."""
    members = {number: Member(number, scheme) for number in range(5)}
    for generation, group in enumerate(GROUPS):
        regroup(members, group)
        found = together([partial(members[one].summed, generation) for one in group])
        assert all(torch.equal(sums, found[0][1]) for _, sums, _ in found)
        given = sum(gradient(one, generation, call) for one in group for call in range(CALLS))
        before, after = (torch.stack([each[at] for each in found]).sum(0) for at in (0, 2))
        assert torch.equal(found[0][1].sum(0) + after, before + given)
        assert (scheme == "balanced") or after.any()
        if DYING in group:
            members[DYING].dies()
            texts = together([members[one].fails for one in group if one != DYING])
            assert all("which awaits rank" in text for text in texts) and any("1" in text for text in texts)
    for one in (0, 2, 3):
        first, second, third = members[one].loaded
        assert first > 0 and second == third, "what calls have fetched is there"
    for one in GROUPS[-1]:
        members[one].collective.communicator.close(DEADLINE)  # type: ignore[union-attr]


@pytest.mark.slow
def test_nothing_stays_open() -> None:
    members = {number: Member(number, "balanced") for number in range(2)}
    counted = []
    for generation in range(4):
        regroup(members, (0, 1))
        together([partial(one.summed, generation) for one in members.values()])
        together([one.dies for one in members.values()])
        counted.append(threads_and_files())
    assert left_since(counted[1]) == (0, 0), counted
    assert {one.loaded[1] for one in members.values()} == {one.loaded[-1] for one in members.values()}
