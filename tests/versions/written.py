"""Files of every form, as this zenc writes them: ``python -m tests.versions.written 0.2`` makes those of a release.

A release's folder is written once. Every later zenc reads what lies in it, or refuses it by name and says what to do:
nobody can have files of an old release made anew. Those of 0.1 are of the code before decision 30, which had fewer."""

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import zenc
from tests.support.ranks import Ranks
from zenc import api
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.kinds import open as open_text
from zenc.simulator.calibration import BOUNDLESS, Calibration, Kernel, linear_kernel
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile
from zenc.torch.handle import Attachment

STEPS = 8


class Small(nn.Module):
    """A table and a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.EmbeddingBag(12, 2, sparse=True)
        self.layer = nn.Linear(2, 8)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.layer(self.words(ids))  # type: ignore[no-any-return]


class Trained:
    """Every object with a state, on one rank: two handles, an averager and a sharded optimizer, by
    ``folder``'s texts.
    """

    def __init__(self, group: dist.ProcessGroup, folder: Path) -> None:
        self.rank = group.rank()
        self.models: list[DistributedDataParallel] = []
        choice = zenc.compile(folder / "choice.zen", scheme="pick")
        self.table = nn.Parameter(torch.ones(6, 2))
        sums = zenc.load("balanced", group, deadline=30)
        self.by_name: dict[str, Any] = {
            "choosing": self._attached(group, choice, profiler=zenc.Profiler(every=1)),
            "keeping": self._attached(group, folder / "lossy.zen", dense=True, least_values=1),
            "averager": zenc.load_averager(folder / "averaging.zen", group, deadline=30),
            "rows": zenc.ShardedTableOptimizer([self.table], torch.optim.SparseAdam, sums, lr=0.1),
        }

    def _attached(self, group: dist.ProcessGroup, scheme: Any, **options: Any) -> Attachment:
        torch.manual_seed(0)
        self.models.append(DistributedDataParallel(Small(), process_group=group))
        return zenc.attach(self.models[-1], scheme, deadline=30, **options)

    def step(self, number: int) -> None:
        ids = torch.randint(0, 12, (3, 2), generator=torch.Generator().manual_seed(10 * number + self.rank))
        for model in self.models:
            model.zero_grad()
            model(ids).pow(2).sum().backward()
        self.by_name["averager"].average_parameters([torch.ones(2)])
        self.table.grad = torch.sparse_coo_tensor(ids[:1] % 6, torch.ones(2, 2), (6, 2), check_invariants=False)
        self.by_name["rows"].step()

    def states(self) -> dict[str, Any]:
        """Return name -> state, as it goes into a checkpoint."""
        return {name: each.state_dict() for name, each in self.by_name.items()}

    def load(self, states: dict[str, Any]) -> dict[str, str]:
        """Go on from ``states``; return name -> the error, or nothing."""
        found = {}
        for name, state in states.items():
            try:
                self.by_name[name].load_state_dict(state)
                found[name] = ""
            except zenc.ZencError as error:
                found[name] = str(error)
        return found


def save(group: dist.ProcessGroup, folder: str) -> None:
    """Train a little, and save this rank's states."""
    trained = Trained(group, Path(folder))
    for number in range(STEPS):
        trained.step(number)
    torch.save(trained.states(), Path(folder) / f"states.{group.rank()}.pt")


def read_again(
    group: dist.ProcessGroup, folder: str, texts: str, changes: dict[str, dict[str, Any]]
) -> tuple[dict[str, str], dict[str, Any], dict[str, Any]]:
    """Return errors of loading this rank's states with ``changes``, the loaded states, and those saved then.

    The states are in ``folder``, and the schemes in ``texts``.
    """
    saved = torch.load(Path(folder) / f"states.{group.rank()}.pt", weights_only=True)
    saved = {name: {**state, **changes.get(name, {})} for name, state in saved.items()}
    trained = Trained(group, Path(texts))
    return trained.load(saved), saved, trained.states()


SCHEME = """# A schedule by hand, which imports nothing.
scheme by_hand(seed = 7) {
    communication: schedule {
        push { step { for d in 1 .. size - 1 { send part (rank + d) mod size to (rank + d) mod size } } }
        pull { step { for d in 1 .. size - 1 { send part rank to (rank + d) mod size } } }
    }
    aggregation: incremental
    partition: parallelism
    balance: balanced by permutation(seed)
}
"""
STRATEGY = f"""{SCHEME}
strategy mixed {{
    tensors above 1 MB: by_hand(seed = 8)
    others: by_hand
}}
"""
AVERAGING = "averaging pair { alternate [everyone] sums: dense_ring }\n"
_SPARSE = """
    communication: point_to_point
    aggregation: incremental
    partition: parallelism
    balance: imbalanced"""
CHOICE = f"""scheme one {{{_SPARSE}
}}
scheme other {{{_SPARSE}
    pull: bitmap
}}
scheme pick {{
    choose(trials = 1) from [one, other]
}}
"""
LOSSY = f"""scheme top {{{_SPARSE}
    push: coo
    pull: dense
    select: top_of_parts(0.1)
    feedback: residual
}}
"""
TEXTS = {
    "scheme.zen": SCHEME, "strategy.zen": STRATEGY, "averaging.zen": AVERAGING, "choice.zen": CHOICE,
    "lossy.zen": LOSSY,
}  # fmt: skip
"""File name -> text."""


HERE = Path(__file__).resolve().parent
PROFILE = uniform(0.25, 12, 2, name="words.weight")
MODEL = ModelProfile(
    ranks=2,
    backend="gloo",
    device="cpu",
    steps=3,
    seconds_step=0.1,
    seconds_synchronising=0.05,
    seconds_exposed=0.04,
    parameters=(ParameterProfile("words.weight", (12, 2), "f32", "sparse", 0.25, 0.01, 0.001),),
    profiles={PROFILE.name: PROFILE},
)
CALIBRATION = Calibration(
    "here",
    bandwidth=1.25e7,
    fan_in=110e3,
    cores=2,
    spread=0.1,
    merge=linear_kernel(2e-9),
    owners=Kernel(((0.0, 0.02e-9), (0.01, 0.16e-9), (0.1, 0.7e-9)), BOUNDLESS),
    shares=Kernel(((0.0, 0.03e-9), (0.01, 0.16e-9), (0.1, 0.37e-9)), BOUNDLESS),
)


def write(folder: Path) -> None:
    """Write all files into a new ``folder``. The process is in it then: manifests have the names of texts."""
    folder.mkdir()
    os.chdir(folder)
    for name, text in TEXTS.items():
        Path(name).write_text(text, encoding="utf-8")
    Path("profiles.json").write_text(dump_profiles([PROFILE]), encoding="utf-8")
    MODEL.save("model.json")
    Path("calibration.json").write_text(json.dumps(CALIBRATION.to_json(), indent=1) + "\n", encoding="utf-8")
    api.compile("scheme.zen", ranks=2, params={"seed": 9}).save("scheme")
    open_text("strategy.zen", ranks=2).compile("plan").save("strategy")
    with Ranks(2) as ranks:
        ranks.run("tests.versions.written:save", folder=str(folder))


if __name__ == "__main__":
    release = HERE / sys.argv[1]
    assert not release.exists(), f"{release} is written already"
    try:
        write(release)
    except BaseException:
        shutil.rmtree(release, ignore_errors=True)
        raise
