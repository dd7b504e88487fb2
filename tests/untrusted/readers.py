"""Readers of all files and states that may come from strangers, with a good sample of each.

Reader  = sample read        # sample(folder): a good file, or a folder; read(path): ends, or raises a ZencError
READERS = kind -> Reader
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import zenc
from tests.runtime.lossy.test_conservation import scheme
from tests.support.local import collectives, run_all
from zenc.codegen.artifact import load_artifact
from zenc.errors import ZencError
from zenc.gradients.index_sets import figures, read_gradients
from zenc.gradients.profile_fit import HolderCounts
from zenc.gradients.profile_generators import uniform, zipf
from zenc.gradients.profile_io import dump_profiles, read_profiles
from zenc.kinds import open as open_text
from zenc.language.files import load_file
from zenc.report.measured import read_measured
from zenc.runtime.choice.profiler import Profiler
from zenc.runtime.lossy.lossy_collective import LossyCollective
from zenc.scheme.resolve import resolve
from zenc.simulator.calibration import DEFAULTS, read_calibration
from zenc.simulator.training.model_profile import ModelProfile, ParameterProfile, read_model_profile
from zenc.strategy.artifact import load_compiled_strategy
from zenc.topology.importers.graph_files import node_link
from zenc.topology.load import load_topology, resolve_topology
from zenc.torch.records.timeline import _read as read_timeline

SCHEME = """scheme mine {
    communication: schedule { push { step { send part 0 to 0 where rank > 0 } } pull { for r in 1 .. size - 1 { step {
        send all to r where rank == 0 } } } }
    aggregation: incremental  partition: centralization  balance: imbalanced  push: auto  pull: auto
}"""
RULES = 'strategy mine { tensors "h.*": dense_ring  others: choose from [dense_ring, double_binary_tree] }'


@dataclass(frozen=True)
class Reader:
    sample: Callable[[Path], Path]
    read: Callable[[Path], Any]


def outcome(kind: str, path: Path) -> str:
    """Return the result of reading a file of a ``kind``: "read", or the ids of the error. Any other error is a bug."""
    try:
        READERS[kind].read(path)
    except ZencError as error:
        assert str(error) and all(each.message and json.dumps(each.to_json()) for each in error.diagnostics)
        return ", ".join(dict.fromkeys(diagnostic.id for diagnostic in error.diagnostics))
    return "read"


def written(name: str, text: str, folder: Path) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def dumped(name: str, data: Any, folder: Path) -> Path:
    return written(name, json.dumps(data), folder)


def copied(source: Path, folder: Path) -> Path:
    return Path(shutil.copytree(source, folder / "artifact"))


def read_text(path: Path) -> None:
    """Read a file as a scheme and as a topology, whichever it is."""
    program = load_file(path)
    errors = []
    for read in (resolve, resolve_topology):
        try:
            read(program)
        except ZencError as error:
            errors.append(error)
    if len(errors) == 2:
        raise errors[0]


def model_profile(folder: Path) -> Path:
    parameters = (ParameterProfile("words", (100, 8), "f32", "sparse", 0.1, 0.01, 0.002),)
    made = ModelProfile(4, "gloo", "cpu", 40, 0.2, 0.1, 0.05, parameters, {"words": uniform(0.1, 100, name="words")})
    made.save(folder / "model.json")
    return folder / "model.json"


def read_all_profiles(path: Path) -> None:
    assert all(0 <= profile.density <= 1 for profile in read_profiles(path).values())


def read_artifact(path: Path) -> None:
    artifact = load_artifact(path)
    assert json.dumps(artifact.manifest) and artifact.plan.digest


def read_model(path: Path) -> None:
    for parameter in read_model_profile(path).parameters:
        assert parameter.bytes >= 0 and parameter.rows >= 0


def read_index_sets(path: Path) -> None:
    figures(read_gradients(path))


def index_archive(folder: Path) -> Path:
    np.savez(folder / "sets.npz", units=10, width=4, dtype="f16", rank0=np.array([3, 1]), rank1=np.arange(4))
    return folder / "sets.npz"


@cache
def keeper(loads: bool) -> LossyCollective:
    """Make a collective with residuals of ``w``: one whose state is saved, or one that ``loads`` states."""
    (made,) = collectives(zenc.compile_text(scheme("top(0.1)"), ranks=1), 1)
    run_all([made], [torch.arange(40.0)], name="w")
    assert isinstance(made, LossyCollective)
    return made


def saved_residuals(folder: Path) -> Path:
    torch.save(keeper(loads=False).state_dict(), folder / "state.pt")
    return folder / "state.pt"


def saved_counts(folder: Path) -> Path:
    tally = HolderCounts("w", 9, 2, "f32", 3, 9)
    tally.add(np.arange(9) % 4, np.array([10, 20, 30]))
    arrays = {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in tally.state().items()}
    torch.save({"tallies": [arrays], "calls": {"w": 2}}, folder / "counts.pt")
    return folder / "counts.pt"


def state_in(path: Path) -> Any:
    """Read a state as users are told to. Torch's own refusals are no concern of zenc's."""
    try:
        return torch.load(path, weights_only=True)
    except Exception:  # of many kinds
        return None


def compiled(folder: Path, choice: bool = False) -> Path:
    return copied(_artifact(choice), folder)


@cache
def _artifact(choice: bool) -> Path:
    text = "scheme mine { choose from [dense_ring, double_binary_tree] }"
    artifact = zenc.compile_text(text, ranks=4) if choice else zenc.compile("balanced", ranks=4)
    return artifact.save(tempfile.mkdtemp(prefix="zenc-test-"))


def strategy(folder: Path) -> Path:
    open_text(written("step.zen", RULES, folder), ranks=4).compile("cpu").save(folder / "artifact")
    return folder / "artifact"


MEASURED = {"settings": {"ranks": 8, "rate": "100mbit", "workload": {"units": 9, "kind": "rows", "zipf": 1.1}},
            "peers": {"a": {"seconds": {"low": 1.0, "median": 2.0, "high": 3.0}, "rounds": 5, "sent": 10}}}  # fmt: skip
SETS = {"units": 10, "width": 4, "dtype": "f16", "ranks": [[3, 1], [0, 1, 2]]}
TIMELINE = {"traceEvents": [{"ph": "X", "name": "push 1", "pid": 0, "tid": 1, "ts": 1.0, "dur": 2.0, "args": {}}]}

READERS: Mapping[str, Reader] = {
    "text": Reader(partial(written, "mine.zen", SCHEME), read_text),
    "topology": Reader(partial(written, "box.zen", "topology t { like ring(4) }"), load_topology),
    "node-link": Reader(lambda at: dumped("a.json", node_link(load_topology("two_boxes")), at), load_topology),
    "calibration": Reader(partial(dumped, "here.json", DEFAULTS.to_json()), read_calibration),
    "profiles": Reader(partial(written, "p.json", dump_profiles([zipf(0.02, 1.05, 5000)])), read_all_profiles),
    "model profile": Reader(model_profile, read_model),
    "measurements": Reader(partial(dumped, "lab.json", MEASURED), read_measured),
    "timeline": Reader(partial(dumped, "trace.json", TIMELINE), read_timeline),
    "index sets": Reader(partial(dumped, "sets.json", SETS), read_index_sets),
    "index archive": Reader(index_archive, read_index_sets),
    "artifact": Reader(compiled, read_artifact),
    "choice": Reader(partial(compiled, choice=True), read_artifact),
    "strategy": Reader(strategy, load_compiled_strategy),
    "residuals": Reader(saved_residuals, lambda path: keeper(loads=True).load_state_dict(state_in(path))),
    "counts": Reader(saved_counts, lambda path: Profiler().load_state_dict(state_in(path))),
}
