"""Files of every form, as this zenc writes them: ``python -m tests.versions.written 0.2`` makes those of a release.

A release's folder is written once. Every later zenc reads what lies in it, or refuses it by name and says what to do:
nobody can have files of an old release made anew. Those of 0.1 are of the code before decision 30, which had fewer."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from tests.support.ranks import Ranks
from zenc import api
from zenc.gradients.profile_generators import uniform
from zenc.gradients.profile_io import dump_profiles
from zenc.kinds import open as open_text
from zenc.simulator.calibration import BOUNDLESS, Calibration, Kernel, linear_kernel
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile

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
    "scheme.zen": SCHEME,
    "strategy.zen": STRATEGY,
    "averaging.zen": AVERAGING,
    "choice.zen": CHOICE,
    "lossy.zen": LOSSY,
}
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
        ranks.run("tests.versions.states:save", folder=str(folder))


if __name__ == "__main__":
    release = HERE / sys.argv[1]
    assert not release.exists(), f"{release} is written already"
    try:
        write(release)
    except BaseException:
        shutil.rmtree(release, ignore_errors=True)
        raise
