"""Files and states of every release: read, or refused with their version and with how to make them anew."""

import json
import re
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.docs.pages import ROOT
from tests.support.forked import run_zenc
from tests.support.refusals import refusals
from tests.versions.written import CALIBRATION, HERE, MODEL, PROFILE
from zenc import api
from zenc.codegen.artifact import load_artifact
from zenc.common.versioned import FORMS
from zenc.errors import ZencError
from zenc.gradients.profile_io import read_profiles
from zenc.kinds import open as open_text
from zenc.simulator.calibration import read_calibration
from zenc.simulator.training.model_profile import read_model_profile
from zenc.strategy.artifact import load_compiled_strategy

RELEASES = sorted(path for path in HERE.iterdir() if re.fullmatch(r"\d+\.\d+", path.name))
NEWEST = RELEASES[-1]
OLDEST_MODEL = replace(MODEL, parameters=tuple(replace(each, ready=None, forward=None) for each in MODEL.parameters))
READERS: dict[str, tuple[str, Callable[[Path], Any]]] = {
    "profiles.json": ("zenc_profiles", lambda path: read_profiles(path)[PROFILE.name].to_json() == PROFILE.to_json()),
    "model.json": (
        "zenc_profiles",
        lambda path: read_model_profile(path).to_json() in (MODEL.to_json(), OLDEST_MODEL.to_json()),
    ),
    "calibration.json": ("zenc_calibration", lambda path: read_calibration(path) == CALIBRATION),
    "scheme": ("zenc_artifact", lambda path: dict(load_artifact(path).plan.parameters) == {"seed": 9}),
    "strategy": ("zenc_strategy", lambda path: len(load_compiled_strategy(path).rules) == 2),
}
"""Name in a release's folder -> the key of its version, and whether reading gives what was written."""
REFUSED = {("0.1", "scheme")}
"""Readers of files whose version has changed since."""
FILES = [release / name for release in RELEASES for name in READERS if (release / name).exists()]
STATES = "tests.versions.written:read_again"


def shown(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


def keys_of(data: object) -> Iterator[str]:
    if isinstance(data, dict):
        yield from (key for key in data if key in FORMS)
        for value in data.values():
            yield from keys_of(value)


def test_the_newest_release_has_files_of_every_form() -> None:
    data = [json.loads(path.read_text()) for path in NEWEST.rglob("*.json")]
    states = torch.load(NEWEST / "states.0.pt", weights_only=True)
    assert set(keys_of(states)).union(*(keys_of(each) for each in data)) == set(FORMS)
    assert {path.name for path in FILES if path.parent == NEWEST} == set(READERS)


@pytest.mark.parametrize("path", FILES, ids=shown)
def test_files_of_a_release_are_read_or_say_what_to_do(path: Path) -> None:
    key, is_same = READERS[path.name]
    if (path.parent.name, path.name) not in REFUSED:
        assert is_same(path)
        return
    with pytest.raises(ZencError, match=r"is of version \d+ of \w+.*reads \d+|compiled by zenc") as caught:
        is_same(path)
    (found,) = caught.value.diagnostics
    assert found.id == "other-version" and "zenc compile" in (found.help or "") and key in FORMS


@pytest.mark.parametrize("path", [path for release in RELEASES for path in sorted(release.glob("*.zen"))], ids=shown)
def test_texts_of_a_release_are_still_in_the_language(path: Path) -> None:
    names = re.findall(r"^scheme (\w+)", path.read_text(), re.MULTILINE)
    if path.stem == "averaging":
        assert open_text(path, ranks=2).check().warnings == ()
    else:
        assert names and all(api.check(path, scheme=name, ranks=2).plan.size == 2 for name in names)


@pytest.mark.parametrize("release", RELEASES, ids=shown)
def test_states_of_a_release_are_gone_on_from(two: Any, release: Path) -> None:
    for errors, saved, now in two.run(STATES, folder=str(release), texts=str(NEWEST), changes={}):
        assert errors == dict.fromkeys(saved, "") and len(saved) == (1 if release.name == "0.1" else 4)
        before, after = (each["choosing"] for each in (saved, now))
        assert before["profiler"]["calls"] == after["profiler"]["calls"] == {"words.weight": 8}
        decided = {key for key in before["choices"] if key not in FORMS}
        if before["scheme"] == after["scheme"]:
            assert len(decided) == 1 and decided <= after["choices"].keys()
        if "keeping" in saved:
            of_saved, of_now = (each["keeping"]["residuals"]["tensors"] for each in (saved, now))
            assert of_saved.keys() == of_now.keys() and any(each["residual"].any() for each in of_saved.values())
            for name, each in of_saved.items():
                assert torch.equal(each["residual"], of_now[name]["residual"])
            assert now["averager"]["step"] == saved["averager"]["step"] == 8
            assert torch.equal(now["rows"]["state"][0]["exp_avg"], saved["rows"]["state"][0]["exp_avg"])


def test_states_of_another_version_are_refused_by_it(two: Any) -> None:
    parts = {"choosing": "zenc_state", "keeping": "zenc_state", "averager": "zenc_averaging", "rows": "zenc_rows"}
    changes = {name: {key: 7} for name, key in parts.items()}
    for errors, _, _ in two.run(STATES, folder=str(NEWEST), texts=str(NEWEST), changes=changes):
        for name, key in parts.items():
            assert f"error[other-version]: this state is of version 7 of {FORMS[key].what}" in errors[name]
            assert "a newer zenc wrote it: use that one, or" in errors[name]


@given(st.sampled_from(list(FORMS.values())), st.integers() | st.booleans() | st.none() | st.text() | st.floats())
def test_any_other_number_is_refused_with_both_and_with_what_to_do(form: Any, found: Any) -> None:
    if type(found) is int and found == form.version:
        return form.ensure({form.key: found}, "it")
    (said,) = refusals(form.error, form.ensure, {form.key: found}, "it")
    assert said.id == "other-version" and said.help.endswith(form.again)
    assert f"version {found!r:.20} of {form.what}" in said.message and f"reads {form.version}" in said.message
    assert said.help.startswith("a newer zenc") == (isinstance(found, int) and found > form.version)


def test_data_without_a_number_are_of_the_first_version_or_none() -> None:
    unnumbered = {key for key, form in FORMS.items() if form.is_form_of({})}
    assert unnumbered == {"zenc_choices", "zenc_counts", "zenc_averaging", "zenc_rows"}
    for form in FORMS.values():
        assert form.unnumbered in (None, 1) and form.is_form_of(form.head) and not form.is_form_of([form.key])
        form.ensure(form.head, "it")


@pytest.mark.parametrize(("name", "number"), [("profiles.json", 2), ("model.json", 0), ("calibration.json", 1)])
def test_a_file_of_another_version_says_which_and_how_to_make_it_anew(tmp_path: Path, name: str, number: int) -> None:
    key, read = READERS[name]
    data = json.loads((NEWEST / name).read_text())
    (tmp_path / name).write_text(json.dumps({**data, key: number}))
    with pytest.raises(ZencError, match=rf"{name} is of version {number} of {FORMS[key].what}") as caught:
        read(tmp_path / name)
    assert caught.value.diagnostics[0].id == "other-version" and "zenc " in str(caught.value.diagnostics[0].help)


@pytest.mark.parametrize("change", [{"zenc": "0.0.9"}, {"zenc_artifact": 2, "zenc": "0.0.9"}])
def test_an_artifact_of_another_version_says_the_command_that_makes_it_anew(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    where = tmp_path / "my scheme"
    shutil.copytree(NEWEST / "scheme", where)
    before = load_artifact(where)
    manifest = json.loads((where / "manifest.json").read_text())
    (where / "manifest.json").write_text(json.dumps({**manifest, **change}))
    with pytest.raises(ZencError, match=r"zenc 0\.0\.9") as caught:
        load_artifact(where)
    (found,) = caught.value.diagnostics
    again = str(found.help).removeprefix("compile it again: zenc ")
    done = run_zenc(shlex.split(again), tmp_path, {"ZENC_CACHE_DIR": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"})
    assert (found.id, done.returncode) == ("other-version", 0), done.stderr
    assert load_artifact(where).digest == before.digest


def test_the_page_has_every_form_and_its_version() -> None:
    text = (ROOT / "docs/reference/versions.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| [^|]+ \| `(zenc_\w+)` \| (\d+) \|", text, re.MULTILINE)
    assert rows == [(key, str(form.version)) for key, form in FORMS.items()]
