"""Marks of a rank before a call: the units of the sample that its gradient holds, whatever its layout."""

import json

import numpy as np
import pytest
import torch

import zenc
from zenc.errors import CostError, ZencError
from zenc.gradients.profile_fit import HolderCounts, sample_ids
from zenc.runtime.choice.sampling import count_dtype


def marked(gradient, sample=65_536):
    marks = zenc.Profiler(sample=sample).marks("table", gradient)
    ids = sample_ids(marks.layout.units, sample)
    assert marks.held.dtype == torch.uint8 and marks.held[-1] == 0
    return ids[marks.held[:-1].bool().numpy()].tolist()


def coo(rows, shape, dtype=torch.float32):
    indices = torch.tensor(rows).reshape(-1, len(rows)) if not isinstance(rows[0], list) else torch.tensor(rows).T
    values = torch.ones(len(rows), *shape[indices.shape[0] :], dtype=dtype)
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=False)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_rows_of_sparse_and_dense_gradients(dtype):
    gradient = coo([7, 3, 7, 0], (10, 2), dtype)
    assert marked(gradient) == [0, 3, 7]
    assert marked(gradient.to_dense()) == [0, 3, 7]
    dense = torch.zeros(5, 3, dtype=dtype)
    dense[1, 2], dense[2, 0], dense[4, 1] = float("nan"), -0.0, 1e-7
    assert marked(dense) == [1, 4]


def test_sparse_units_of_two_dimensions():
    assert marked(coo([[1, 2], [0, 0]], (3, 4, 5))) == [0, 6]


def test_indices_that_are_out_of_range_are_left_to_the_call():
    assert marked(coo([99, 2, -1], (10, 2))) == [2]


@pytest.mark.parametrize("units", [999, 1000, 50_000])
def test_a_sample_of_the_units(units):
    rows = torch.randperm(units, generator=torch.Generator().manual_seed(0))[: units // 3]
    expected = sorted(set(sample_ids(units, 1000).tolist()) & set(rows.tolist()))
    gradient = torch.sparse_coo_tensor(rows[None], torch.ones(len(rows), 2), (units, 2), check_invariants=False)
    assert marked(gradient, sample=1000) == expected
    assert marked(gradient.to_dense(), sample=1000) == expected
    assert marked(gradient.to_dense().t().contiguous().t(), sample=1000) == expected


def test_every_so_many_th_call_is_sampled():
    profiler, gradient = zenc.Profiler(every=3), torch.ones(4, 2)
    sampled = [profiler.marks("a", gradient) is not None for _ in range(7)]
    assert sampled == [True, False, False, True, False, False, True]
    assert profiler.marks("b", gradient) is not None, "each parameter has its own count"


@pytest.mark.parametrize("gradient", [torch.ones(0, 4), torch.ones(4, 0), torch.ones(3, dtype=torch.int64)], ids=str)
def test_what_has_no_units_has_no_marks(gradient):
    assert zenc.Profiler().marks("table", gradient) is None


def test_counts_fit_in_their_type():
    assert (count_dtype(255), count_dtype(256)) == (torch.uint8, torch.int32)


def test_nothing_to_save(tmp_path):
    assert zenc.Profiler().profiles() == {}
    with pytest.raises(CostError, match="nothing was profiled yet"):
        zenc.Profiler().save(tmp_path / "model.json")
    assert not (tmp_path / "model.json").exists()


def test_a_place_that_can_not_be_written(tmp_path):
    profiler = zenc.Profiler()
    profiler._add(profiler.marks("a", torch.ones(4, 2)), 2, torch.tensor([2, 1, 0, 0]), torch.tensor([10, 30]))
    with pytest.raises(ZencError, match="unwritable-file"):
        profiler.save(tmp_path)
    profiler.save(tmp_path / "model.json")
    (entry,) = json.loads((tmp_path / "model.json").read_text())["profiles"]
    assert (entry["name"], entry["ranks"], entry["recorded"]["bytes_busiest"]) == ("a", 2, 30)
    assert np.isclose(profiler.profiles()["a"].density, 3 / 8)


@pytest.mark.parametrize("options", [{"every": 0}, {"sample": 0}, {"sample": 1 << 30}], ids=str)
def test_numbers_that_make_no_profiler(options):
    with pytest.raises(CostError, match="bad-profile"):
        zenc.Profiler(**options)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
def test_gradients_on_a_gpu_have_the_same_marks():
    rows = torch.arange(0, 200_000, 7)
    gradient = torch.sparse_coo_tensor(rows[None], torch.ones(len(rows), 8), (200_000, 8), check_invariants=False)
    for each in (gradient, gradient.to_dense()):
        assert marked(each.cuda()) == marked(each) != []


NOTHING_HELD = {**HolderCounts("w", 9, 2, "f32", 3, 9).state(), "held": np.zeros(0)}


@pytest.mark.parametrize(
    "state",
    [
        {}, {"tallies": 3, "calls": {}}, {"tallies": [], "calls": {"a": "b"}},
        {"tallies": [NOTHING_HELD], "calls": {}}, None,
    ],
)  # fmt: skip
def test_a_state_that_is_none_changes_nothing(state):
    profiler = zenc.Profiler()
    before = profiler.state_dict()
    with pytest.raises(CostError, match="no state of a profiler") as caught:
        profiler.load_state_dict(state)
    assert caught.value.diagnostics[0].id == "bad-state" and profiler.state_dict() == before
