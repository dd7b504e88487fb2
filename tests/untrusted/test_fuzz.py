"""Good files of every kind with deliberate changes: read, or refused by a diagnostic, and soon."""

import json
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.artifacts import edit, rewrite
from tests.support.damage import paths
from tests.support.fuzz import fuzzed
from tests.untrusted.readers import READERS, outcome
from zenc.common.diagnostics import DIAGNOSTICS
from zenc.errors import ArtifactError
from zenc.plan.from_json import plan_from_json

SECONDS = 5.0
"""Seconds of the processor for files of a few kilobytes. Without a limit reading takes minutes, or all memory."""
DEEP = "@deep@"
NUMBERS = [0, -1, 2**31, 2**53 + 1, 2**63 - 1, 2**63, 2**64, -(2**63), 10**400, 0.5, -0.0, 1e308, 5e-324]
NOT_JSON = [float("nan"), float("inf"), -float("inf")]
TEXTS = ["", "\0", "\ud800", "nan", "1e999", "9" * 5000, "x" * 100_000, "../" * 40, "/dev/zero", DEEP, "rank", "all"]
HOSTILE = [*NUMBERS, *NOT_JSON, *TEXTS, None, True, [], {}, [0] * 30_000, [[]] * 30_000, {"a": {"b": []}}]
TENSORS = [
    torch.zeros(1).expand(1 << 40), torch.zeros(0), torch.zeros(2, 2).to_sparse(), torch.zeros(1, dtype=torch.int64),
    torch.tensor(float("nan")), torch.empty(1 << 40, device="meta"), torch.zeros(3, dtype=torch.complex64),
]  # fmt: skip


@st.composite
def changed(draw: st.DrawFn, sample: Any, values: list[Any]) -> Any:
    """Draw ``sample`` with one to three values in it replaced by ``values`` or by others of its own, or left out."""
    data = sample
    for _ in range(draw(st.integers(1, 3))):
        way = draw(st.sampled_from(paths(data)))
        inner = [_at(sample, other) for other in paths(sample)]
        data = _put(data, way, draw(st.sampled_from(values) | st.sampled_from(inner)), draw(st.integers(0, 4)) == 0)
    return data


def _at(data: Any, way: tuple[Any, ...]) -> Any:
    for key in way:
        data = data[key]
    return data


def _put(data: Any, way: tuple[Any, ...], value: Any, drop: bool) -> Any:
    """Return ``data`` with ``value`` at the end of ``way``, or nothing there."""
    if not way:
        return value
    key, *rest = way
    items = dict(data) if isinstance(data, dict) else dict(enumerate(data))
    if drop and not rest:
        del items[key]
    else:
        items[key] = _put(items[key], tuple(rest), value, drop)
    return items if isinstance(data, dict) else list(items.values())


def as_text(data: Any) -> str:
    return json.dumps(data).replace(f'"{DEEP}"', "[" * 100_000 + "]" * 100_000)


@st.composite
def cut(draw: st.DrawFn, content: bytes) -> bytes:
    """Draw ``content`` cut short, or with some bytes replaced."""
    at = draw(st.integers(0, max(0, len(content) - 1)))
    new = draw(st.sampled_from([b"", b"\0", b"\xff\xfe", b"(" * 3000, b"9" * 3000, b"[" * 3000, b'"', b"\n" * 3000]))
    return content[:at] + new + (content[at + draw(st.integers(0, 20)) :] if draw(st.booleans()) else b"")


def harm_of(kind: str, path: Path) -> str:
    """Return a fault of reading a file, an error without an id or the seconds, or nothing."""
    start = time.process_time()
    found = outcome(kind, path)
    seconds = time.process_time() - start
    if found != "read" and not set(found.split(", ")) <= DIAGNOSTICS.keys():
        return found
    return "" if seconds < SECONDS else f"{seconds:.1f} s"


@pytest.mark.parametrize("kind", READERS)
def test_the_samples_are_good(kind: str, tmp_path: Path) -> None:
    assert outcome(kind, READERS[kind].sample(tmp_path)) == "read"


@pytest.mark.parametrize("kind", READERS)
@fuzzed(15)
@given(data=st.data())
def test_files_that_are_cut_or_have_other_bytes(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = READERS[kind].sample(tmp_path_factory.mktemp("cut"))
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    file = data.draw(st.sampled_from(files))
    file.write_bytes(data.draw(cut(file.read_bytes())))
    assert harm_of(kind, path) == ""


JSON_KINDS = ["node-link", "calibration", "profiles", "model profile", "measurements", "timeline", "index sets"]


@pytest.mark.parametrize("kind", JSON_KINDS)
@fuzzed(30)
@given(data=st.data())
def test_json_with_other_values(kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = READERS[kind].sample(tmp_path_factory.mktemp("json"))
    path.write_text(as_text(data.draw(changed(json.loads(path.read_text()), HOSTILE))))
    assert harm_of(kind, path) == ""


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("artifact", "manifest.json"),
        ("artifact", "plan.json"),
        ("choice", "manifest.json"),
        ("strategy", "strategy.json"),
    ],
)
@fuzzed(30)
@given(data=st.data())
def test_artifacts_with_other_values_and_checksums_that_fit(
    kind: str, name: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = READERS[kind].sample(tmp_path_factory.mktemp("json"))
    found = data.draw(changed(json.loads((path / name).read_text()), HOSTILE))
    rewrite(path, name, as_text(found)) if name == "plan.json" else (path / name).write_text(as_text(found))
    if name == "plan.json":  # with the digest of its own, as if its author meant it
        with suppress(ArtifactError):
            digest = plan_from_json(found).digest
            edit(path, lambda manifest: manifest.update(digest=digest))
    assert harm_of(kind, path) == ""


@pytest.mark.parametrize("kind", ["residuals", "counts"])
@fuzzed(40)
@given(data=st.data())
def test_states_with_other_values(kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = READERS[kind].sample(tmp_path_factory.mktemp("state"))
    state = data.draw(changed(torch.load(path, weights_only=True), [*HOSTILE, *TENSORS]))
    torch.save(state, path)
    assert harm_of(kind, path) == ""
