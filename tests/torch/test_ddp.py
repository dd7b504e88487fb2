"""The DDP seam on real gloo processes: the results of DDP, and separate errors for its traps."""

from __future__ import annotations

import pytest

from tests.support.ranks import Ranks, RanksFailed

JOBS = "tests.torch.jobs:"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options",
    [{}, {"accumulate": True}, {"tied": True}, {"static_graph": True}, {"find_unused_parameters": True},
     {"gradient_as_bucket_view": True}],
    ids=lambda options: next(iter(options), "plain"),
)  # fmt: skip
def test_training_is_the_same_as_with_ddp_alone(four, size, options):
    results = four.run(JOBS + "same_as_ddp", size=size, scheme="balanced", **options)
    assert all(result == results[0] for result in results)


def test_other_schemes_train_as_well(four):
    for scheme in ("agsparse", "hierarchical_centralization", "dense_ring"):
        results = four.run(JOBS + "same_as_ddp", size=3, scheme=scheme)
        assert all(result == results[0] for result in results)


def test_a_rank_with_padding_only(four):
    assert four.run(JOBS + "padding_only", size=2) == [5, 0]


def test_the_hook_as_torch_hooks_are_used(four):
    results = four.run(JOBS + "hook_idiom")
    assert all(result == results[0] for result in results)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("dense", [["words.weight"], ["words.weight", "tags.weight"]], ids=len)
@pytest.mark.parametrize("options", [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.001}], ids=str)
def test_dense_tables_go_through_the_scheme_on_request(four, size, dense, options):
    results = four.run(JOBS + "dense_tables", size=size, dense=dense, **options)
    assert all(result == results[0] for result in results)


def failure(ranks: Ranks, job: str, **arguments: object) -> str:
    with pytest.raises(RanksFailed) as caught:
        ranks.run(JOBS + job, **arguments)
    return "\n".join(str(error) for error in caught.value.errors.values())


@pytest.mark.parametrize("find", [False, True])
def test_an_unused_sparse_parameter_is_named_and_helped(four, find):
    text = failure(four, "unused", find=find)
    assert "error[unused-parameter]: the sparse parameter 'bags.weight' took no part" in text
    assert "out = out + bags(torch.empty(0, 1, dtype=torch.long)).sum()" in text


def test_the_advice_for_unused_parameters_works(four):
    assert four.run(JOBS + "unused_with_the_advice") == [None] * 4


def test_a_second_hook(four):
    text = failure(four, "attach_twice")
    assert "error[hook-taken]" in text and "help: attach once" in text


def test_two_models_with_a_hook_each(four):
    assert four.run(JOBS + "two_models", size=3) == [None] * 3


def test_a_model_without_ddp(four):
    assert "error[not-ddp]" in failure(four, "attach_plain", size=1)


def test_a_table_tied_to_a_dense_layer(four):
    text = failure(four, "attach_tied_to_dense", size=1)
    assert "error[tied-to-dense]: 'table.weight' is a sparse embedding's and also used by Linear" in text


def test_a_rank_that_dies_in_training():
    with Ranks(3) as ranks, pytest.raises(RanksFailed) as caught:
        ranks.run(JOBS + "dies_in_training", seconds=60)
    assert set(caught.value.errors) == {1}
    for text in caught.value.results.values():
        assert text


def test_dense_parameters_that_are_none(four):
    text = failure(four, "dense_refused", name="head.weights")
    assert "error[unknown-parameter]: the model has no parameter 'head.weights' to train" in text
    assert "did you mean 'head.weight'?" in text
    assert "error[sparse-already]: 'words.weight' has sparse gradients" in failure(
        four, "dense_refused", name="words.weight"
    )


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_sparse_gradients_of_16_bits_accumulate(two, dtype):
    """In torch alone "add_out_sparse_cpu" is not implemented for 'BFloat16'."""
    for difference, greatest in two.run(JOBS + "short_tables", dtype=dtype):
        assert difference <= 2**-7 * greatest and greatest > 1
