"""Handles that go on after a rank has died in a backward pass: among fewer ranks, and with a new one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.generations import Join, dies, lives
from zenc.torch.handle import Attachment

STEPS, WORDS = 3, 50
ONE_EACH = 1e-6
"""``bucket_cap_mb`` that gives each gradient a bucket of its own."""


class Words(nn.Module):
    """A table with sparse gradients, if ``sparse``, below two layers."""

    def __init__(self, sparse: bool) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.table = nn.EmbeddingBag(WORDS, 16, sparse=sparse)
        self.layers = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8))

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layers(self.table(words))
        return found


def going_on(
    member: int, join: Join, groups: list[list[int]], text: str, sparse: bool, dying: int, within: bool, folder: str
) -> Any:
    """Return a handle's residuals when each group begins and ends, and the ranks' final parameters.

    Process ``dying`` dies after some of its gradients were summed, if ``within`` a step, or before all of them.
    """
    model, scheme = Words(sparse), Path(folder) / f"{member}.zen"
    scheme.write_text(text)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found: dict[str, Any] = {"begun": [], "ended": [], "errors": []}
    handle: Attachment | None = None
    for number, members in enumerate(groups):
        if member not in members:
            continue
        join(number)
        ddp = DistributedDataParallel(model, bucket_cap_mb=ONE_EACH)
        handle = handle.rebuild(ddp) if handle else attached(ddp, str(scheme), sparse)
        found["begun"].append(kept(handle))
        try:
            for step in range(STEPS + 1):
                if step == STEPS:
                    found["ended"].append(kept(handle))
                    if number + 1 == len(groups):
                        break
                    if member == dying:
                        (model.layers[0].weight if within else model.layers[2].bias).register_hook(lambda _: dies())
                optimizer.zero_grad()
                chance = torch.Generator().manual_seed(100 * member + 10 * number + step)
                ddp(torch.randint(0, WORDS, (8, 4), generator=chance)).pow(2).sum().backward()
                optimizer.step()
        except (RuntimeError, zenc.ZencError):
            found["errors"].append(handle.state.error.diagnostics[0].id if handle.state.error else "")
    assert handle is not None
    found["parameters"] = [each.detach().clone() for each in model.parameters()]
    found["summed"] = handle.summary().total.calls
    return found


def attached(ddp: DistributedDataParallel, scheme: str, sparse: bool) -> Attachment:
    return zenc.attach(ddp, scheme, dense=not sparse, profiler=zenc.Profiler(every=1), deadline=20.0, least_values=1)


def kept(handle: Attachment) -> dict[str, Any]:
    """Return residuals by name, and the state that all ranks share: counted calls, decisions."""
    names = [name for name in handle.parameters if handle.collective.keeper is not None]
    counted = handle.state.profiler.state_dict() if handle.state.profiler else {}
    residuals = {name: residual(handle, name) for name in names}
    return {"residuals": residuals, "calls": counted["calls"], "decisions": [d.to_json() for d in handle.decisions]}


def residual(handle: Attachment, name: str) -> torch.Tensor:
    keeper = handle.collective.keeper
    return handle.residual(name) if keeper and name in keeper.counts() else torch.zeros(handle.state.shapes[name])


JOB = "tests.torch.test_rebuild:going_on"
SCHEDULE = "communication: point_to_point aggregation: incremental partition: parallelism balance: imbalanced"
TOPPED = f"scheme topped {{ {SCHEDULE} select: top_of_parts(0.1) push: coo pull: dense feedback: residual }}"
SIGNED = f"scheme signed {{ {SCHEDULE} push: dense as sign(64) pull: dense as sign(64) feedback: residual }}"
RULES = f'{TOPPED} {SIGNED} strategy tried {{ tensors "*.bias": signed others: topped }}'
CHOSEN = "scheme chosen { choose(every = 4, patience = 2, trials = 0) from [sparcml, balanced, dense_ring] }"
FEWER, ANOTHER = [(0, 1, 2), (0, 2)], [(0, 1, 2), (2, 3, 0)]


def alike(states: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the state that all ranks share, after checking that it is the same."""
    shared = [{name: value for name, value in state.items() if name != "residuals"} for state in states]
    assert all(state == shared[0] for state in shared)
    return shared[0]


@pytest.mark.parametrize(
    ("text", "groups", "within"),
    [(TOPPED, ANOTHER, True), pytest.param(TOPPED, FEWER, False, marks=pytest.mark.slow), (RULES, FEWER, True)],
    ids=["scheme-another", "scheme-fewer", "strategy-fewer"],
)
def test_what_is_kept_is_that_of_before_the_step_that_failed(
    text: str, groups: list[tuple[int, ...]], within: bool, tmp_path: Path
) -> None:
    given = {"text": text, "sparse": False, "dying": 1, "within": within, "folder": str(tmp_path)}
    found = lives(JOB, groups, **given)
    assert set(found) == set(groups[1])
    for member in set(groups[1]) & set(groups[0]):
        ended, begun = found[member]["ended"][0]["residuals"], found[member]["begun"][1]["residuals"]
        assert ended.keys() == begun.keys() and all(torch.equal(ended[name], begun[name]) for name in ended)
        assert any(bool(each.any()) for each in ended.values())
        assert found[member]["errors"] in (["peer-lost"], ["group-broken"])
    alike([found[member]["begun"][-1] for member in groups[1]])
    assert len({str(found[member]["parameters"]) for member in groups[1]}) == 1


@pytest.mark.parametrize("groups", [FEWER, pytest.param(ANOTHER, marks=pytest.mark.slow)], ids=["fewer", "another"])
def test_decisions_stay(groups: list[tuple[int, ...]], tmp_path: Path) -> None:
    given = {"text": CHOSEN, "sparse": True, "dying": 1, "within": False, "folder": str(tmp_path)}
    found = lives(JOB, groups, **given)
    last = alike([found[member]["ended"][-1] for member in groups[1]])["decisions"]
    for member in (0, 2):
        (first,) = found[member]["ended"][0]["decisions"]
        assert (last[0]["scheme"], last[0]["predicted"]) == (first["scheme"], first["predicted"])
