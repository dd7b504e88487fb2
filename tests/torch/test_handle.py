"""Handles on real gloo processes: pickles, copies, lifetimes of models, and deadlines."""

import copy
import io
import json
import logging
import os
import pickle
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

import zenc
from tests.torch.jobs import ROWS, WIDTH, Model, Tables, batch, wrapped
from zenc.errors import CostError, ZencError
from zenc.gradients.profile_io import read_profiles
from zenc.simulator.training.model_profile import read_model_profile


def step(ddp: nn.Module, rank: int, number: int) -> list[torch.Tensor]:
    """Return the gradients of a step, dense."""
    ddp.zero_grad()
    ddp(batch(rank, number))["out"].pow(2).sum().backward()
    return [parameter.grad.to_dense() for parameter in ddp.parameters()]


def saved(what: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(what, buffer)
    return buffer.getvalue()


def agree(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-5, atol=1e-6)


def copied(group: dist.ProcessGroup) -> list[str]:
    """Save, load and copy an attached model as if it was not; return the reprs of a handle and of its copy."""
    rank, ddp = group.rank(), wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=30)
    step(ddp, rank, 0)
    expected = step(ddp, rank, 1)
    assert b"zenc" not in saved(ddp.module), "who loads the model may not have zenc"
    loaded = torch.load(io.BytesIO(saved(ddp.module)), weights_only=False)
    for module in (loaded, copy.deepcopy(ddp.module)):
        assert isinstance(module, Model) and not module.words._forward_pre_hooks
        agree([p.detach() for p in module.parameters()], [p.detach() for p in ddp.parameters()])
    for again in (torch.load(io.BytesIO(saved(ddp)), weights_only=False), copy.deepcopy(ddp)):
        agree(step(again, rank, 1), expected)  # DDP's own way
        new = zenc.attach(again, "balanced", deadline=30)
        agree(step(again, rank, 1), expected)
        assert len(new.stats) == 1 and all(new.stats[name]["units_out"] for name in handle.parameters)
    other = pickle.loads(pickle.dumps(handle))
    assert other.parameters == handle.parameters and not other.is_attached and other.stats == {}
    try:
        print(other.collective)
    except zenc.SchemeError as error:
        assert error.diagnostics[0].id == "not-attached"
    return [repr(handle), repr(other)]


def hook_idiom_copied(group: dist.ProcessGroup) -> str:
    ddp = wrapped(group)
    state = zenc.ZencState(zenc.load("balanced", group, deadline=30), group)
    ddp.register_comm_hook(state, zenc.zenc_hook)
    again = torch.load(io.BytesIO(saved(ddp)), weights_only=False)
    agree(step(again, group.rank(), 0), step(ddp, group.rank(), 0))
    return type(again).__name__


def detached(group: dist.ProcessGroup) -> tuple[str, Any]:
    """Attach, detach, and attach anew: training goes on as with DDP alone."""
    rank, ddp, alone = group.rank(), wrapped(group), wrapped(group)
    handle = zenc.attach(ddp, "balanced", deadline=30)
    agree(step(ddp, rank, 0), step(alone, rank, 0))
    calls = {name: stats["call"] for name, stats in handle.stats.items()}
    handle.detach()
    ddp.module.use_bags = alone.module.use_bags = True
    for number in (1, 2):
        agree(step(ddp, rank, number), step(alone, rank, number))
    assert {name: stats["call"] for name, stats in handle.stats.items()} == calls, "nothing went through the scheme"
    assert not ddp._forward_hooks and not ddp._forward_pre_hooks
    shown = repr(handle)
    second = zenc.attach(ddp, "agsparse", deadline=30)
    agree(step(ddp, rank, 3), step(alone, rank, 3))
    handle.detach()  # of the first, which has nothing to give back
    assert second.is_attached and not handle.is_attached
    return shown, sorted(second.stats)


def switched_off(group: dist.ProcessGroup) -> tuple[str, Any]:
    """Switch zenc off by the environment, on all ranks and then on one: training is DDP's; return the notices."""
    rank, ddp, alone = group.rank(), wrapped(group), wrapped(group)
    os.environ["ZENC_ATTACH"] = "0"
    try:
        handle = zenc.attach(ddp, "balanced", deadline=30)
        for number in range(2):
            agree(step(ddp, rank, number), step(alone, rank, number))
        assert not handle.is_attached and not handle.stats
        if rank:
            del os.environ["ZENC_ATTACH"]
        zenc.attach(wrapped(group), "balanced", deadline=30)
    except zenc.SynchronisationError as error:
        return error.diagnostics[0].id, "ZENC_ATTACH is 0 on rank 0, and 1 on rank 1" in error.diagnostics[0].message
    finally:
        os.environ.pop("ZENC_ATTACH", None)
    return "nothing was told", False


def deadlines(group: dist.ProcessGroup) -> list[float]:
    """Return the deadlines of schemes on groups with timeouts of their own."""
    found = []
    for timeout, environment, given in ((7, None, None), (8, "33", None), (9, "33", 44.0), (None, None, None)):
        limit = None if timeout is None else timedelta(seconds=timeout)
        own = dist.new_group(timeout=limit)
        if environment:
            os.environ["ZENC_DEADLINE_S"] = environment
        try:
            collective = zenc.load("balanced", own, deadline=given)
        finally:
            os.environ.pop("ZENC_DEADLINE_S", None)
        assert collective.communicator.group is not None
        found.append(collective.communicator.group.options._timeout.total_seconds())  # type: ignore[attr-defined]
    return found


def dry_run(group: dist.ProcessGroup, path: str) -> dict[str, Any]:
    """Train in a dry run as DDP alone does, then with a scheme. Rank 0 saves the profile."""
    rank, ddp, alone = group.rank(), wrapped(group), wrapped(group)
    handle = zenc.attach(ddp, dry_run=True, deadline=30, profiler=zenc.Profiler(every=3))
    try:
        print(handle.profile)
    except zenc.CostError as error:
        assert error.diagnostics[0].id == "bad-profile"
    for number in range(6):
        agree(step(ddp, rank, number), step(alone, rank, number))
        dist.barrier()  # futures have run their callbacks, or all but
    profile = handle.profile
    if rank == 0:
        handle.save(path)
    assert "6 steps" in repr(handle) and pickle.loads(pickle.dumps(handle)).parameters == handle.parameters
    assert b"zenc" not in saved(ddp.module) and step(copy.deepcopy(ddp), rank, 8)
    handle.detach()
    assert not ddp._forward_hooks and not ddp.module.words._forward_hooks
    zenc.attach(ddp, "balanced", deadline=30)
    agree(step(ddp, rank, 9), step(alone, rank, 9))
    shown = repr(profile)
    assert "ms a step" in shown and "\n" not in shown
    return profile.to_json()


def dry_run_of_dense_tables(group: dist.ProcessGroup) -> tuple[str, ...]:
    """Count embeddings with dense gradients in a dry run without naming them."""
    torch.manual_seed(0)
    ddp = nn.parallel.DistributedDataParallel(Tables(), process_group=group)
    handle = zenc.attach(ddp, dry_run=True, deadline=30)
    for number in range(3):
        ddp(batch(group.rank(), number)).pow(2).sum().backward()
    dist.barrier()
    profile = handle.profile
    (words,) = [each for each in profile.parameters if each.name == "words.weight"]
    held = len(batch(group.rank(), 0).unique()) / ROWS
    assert words.layout == "dense" and abs(words.density - held) < 1e-6
    assert abs(profile.profiles["words.weight"].density - held) < 0.01
    return handle.parameters


def nothing_sent(group: dist.ProcessGroup) -> bool:
    """Return whether the hook that communicates nothing leaves this rank its own gradients and nothing else."""
    ddp, alone = wrapped(group), wrapped(group).module
    ddp.register_comm_hook(group, zenc.noop_hook)
    for number in range(2):
        mine = step(ddp, group.rank(), number)
    alone(batch(group.rank(), 1))["out"].pow(2).sum().backward()
    return all(torch.equal(a, p.grad.to_dense()) for a, p in zip(mine, alone.parameters(), strict=True))


def capacity_on_the_cpu(group: dist.ProcessGroup) -> list[str]:
    """Return the log of two calls with capacity, for which the CPU has no use."""
    logged: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: logged.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("zenc").addHandler(handler)
    try:
        collective = zenc.load("balanced", group, deadline=30, capacity=0.5)
        before = len([text for text in logged if "capacity" in text])
        for number in range(2):
            assert collective.all_reduce(torch.ones(4 + number)).tolist() == [group.size()] * (4 + number)
    finally:
        logging.getLogger("zenc").removeHandler(handler)
    assert before == 0, "before a tensor comes, it may be for a GPU"
    return [text for text in logged if "capacity" in text]


def parameters_of_schemes(group: dist.ProcessGroup) -> list[Any]:
    """Return the seeds of schemes that are loaded and attached with values for it."""
    loaded = zenc.load("balanced", group, params={"seed": 7}, deadline=120)
    handle = zenc.attach(wrapped(group), "balanced", params={"seed": "0x11"}, deadline=120)
    return [dict(each.artifact.plan.parameters)["seed"] for each in (loaded, handle.collective)]


JOBS = "tests.torch.test_handle:"


def test_an_attached_model_is_saved_and_copied(two):
    for shown, twin in two.run(JOBS + "copied"):
        assert shown.startswith("<zenc.Attachment words.weight, bags.weight: <zenc.ZencState of <zenc.Collective ")
        assert "a copy, with no scheme" in twin and "\n" not in shown + twin


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
        ("steps", 0), ("ranks", True), ("seconds_step", -1.0), ("seconds_exposed", 9.0), ("parameters", [{}]),
        ("seconds_backward", -1.0),
    ],
)  # fmt: skip
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
