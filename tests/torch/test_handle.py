"""Handles on real gloo processes: pickles, copies, lifetimes of models, and deadlines."""

from __future__ import annotations

import json

import pytest

from tests.torch.jobs import ROWS, WIDTH
from zenc.errors import CostError, ZencError
from zenc.gradients.profile_io import read_profiles
from zenc.simulator.training.model_profile import read_model_profile

JOBS = "tests.torch.handle_jobs:"


def test_an_attached_model_is_saved_and_copied(two):
    for shown, copy in two.run(JOBS + "copied"):
        assert shown.startswith("<zenc.Attachment words.weight, bags.weight: <zenc.ZencState of <zenc.Collective ")
        assert "a copy, with no scheme" in copy and "\n" not in shown + copy


def test_a_model_with_the_hook_alone_is_saved(two):
    assert two.run(JOBS + "hook_idiom_copied") == ["DistributedDataParallel"] * 2


def test_ddp_has_its_own_way_again_after_detach(two):
    for shown, summed in two.run(JOBS + "detached"):
        assert shown.endswith("(detached)>") and summed == ["words.weight ... bags.weight"]


def test_the_environment_leaves_all_gradients_to_ddp(two):
    assert two.run(JOBS + "switched_off") == [("different-options", True)] * 2


def test_waits_take_as_long_as_those_of_the_group(two):
    """The environment, or above it the caller, sets another deadline; torch's own default is 30 minutes."""
    assert two.run(JOBS + "deadlines") == [[7.0, 33.0, 44.0, 1800.0]] * 2


def test_a_dry_run_observes_and_changes_nothing(two, tmp_path):
    path = tmp_path / "model.json"
    here, other = two.run(JOBS + "dry_run", path=str(path))
    saved = read_model_profile(path)
    assert saved.to_json() == here
    assert {each["name"]: each["layout"] for each in here["parameters"]} == {
        "words.weight": "sparse", "bags.weight": "sparse", "head.weight": "dense", "head.bias": "dense"
    }  # fmt: skip
    assert (saved.ranks, saved.backend, saved.device) == (2, "gloo", "cpu")
    assert saved.steps == 4, "two of six were for counting"
    assert 0 < saved.seconds_exposed <= saved.seconds_synchronising <= saved.seconds_step
    words = saved.parameters[0]
    assert words.shape == (ROWS, WIDTH) and 0 < words.density < 0.1 and words.bytes == ROWS * WIDTH * 4
    assert set(read_profiles(path)) == {"words.weight", "bags.weight"}, "it is a file of profiles, too"
    assert saved.profiles["words.weight"].recorded.steps == 2
    dense = [[(each["name"], each["density"]) for each in seen["parameters"][2:]] for seen in (here, other)]
    assert dense[0] == dense[1]
    ready = {each.name: each.ready for each in saved.in_order}
    assert list(ready)[:2] in (["head.weight", "head.bias"], ["head.bias", "head.weight"]), "the last layer comes first"
    assert max(ready.values()) == saved.seconds_backward < saved.seconds_step
    assert all(0 < each.forward < saved.seconds_step for each in saved.parameters) and saved.seconds_forward > 0


def test_dense_tables_are_seen_in_a_dry_run(two):
    assert two.run(JOBS + "dry_run_of_dense_tables") == [("words.weight", "tags.weight")] * 2


def test_the_hook_that_sends_nothing(two):
    assert two.run(JOBS + "nothing_sent") == [True, True]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("steps", 0),
        ("ranks", True),
        ("seconds_step", -1.0),
        ("seconds_exposed", 9.0),
        ("parameters", [{}]),
        ("seconds_backward", -1.0),
    ],
)
def test_a_model_profile_that_can_not_be(tmp_path, key, value):
    model = {"ranks": 2, "backend": "gloo", "device": "cpu", "steps": 3, "seconds_step": 0.5,
             "seconds_synchronising": 0.2, "seconds_exposed": 0.1, "parameters": []}  # fmt: skip
    path = tmp_path / "model.json"
    path.write_text(json.dumps({"zenc_profiles": 1, "model": model, "profiles": []}))
    whole = read_model_profile(path)
    assert whole.seconds_without == 0.4
    assert (whole.seconds_forward, whole.in_order) == (None, ()), "of an older file"
    with pytest.raises(ZencError, match="unwritable-file"):
        whole.save(tmp_path / "nowhere" / "model.json")
    model[key] = value
    path.write_text(json.dumps({"zenc_profiles": 1, "model": model, "profiles": []}))
    with pytest.raises(CostError, match="bad-profile"):
        read_model_profile(path)


def test_room_that_the_cpu_has_no_use_for(two):
    told, others = two.run(JOBS + "capacity_on_the_cpu")
    assert told == ["balanced: capacity= is for GPUs; on the CPU all is counted, and it changes nothing"] and not others


def test_values_for_the_parameters_of_a_scheme(two):
    assert two.run(JOBS + "parameters_of_schemes") == [[7, 17]] * 2
