"""The run time on real gloo processes."""

import pytest

from tests.support.cases import COMBINATIONS, FORMATS, scheme_text
from tests.support.ranks import Ranks
from zenc.wire.structs import MESSAGE_HEADER_BYTES, SEGMENT_HEADER_BYTES

JOBS = "tests.runtime.jobs:"
BALANCED = scheme_text(*COMBINATIONS[-1])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("size", range(1, 10))
def test_all_combinations(nine, size):
    """Each third combination comes with a pair of formats and a unit, in rotation with the size."""
    chosen = [index for index in range(len(COMBINATIONS)) if (index + index // 3 + size) % 3 == 0]
    texts = []
    for index in chosen:
        turn = size + 5 * index
        unit = ("auto", "row", "element")[turn % 3]
        texts.append(scheme_text(*COMBINATIONS[index], FORMATS[turn % 7], FORMATS[turn // 7 % 7], unit))
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size)
    assert all(result == results[0] for result in results)


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda c: "-".join(str(x).split()[-1] for x in c))
@pytest.mark.parametrize("size", range(1, 10))
def test_every_combination_with_every_format_and_unit(nine, size, combination):
    texts = [
        scheme_text(*combination, push, pull, unit)
        for push in FORMATS
        for pull in FORMATS
        for unit in ("row", "element")
    ]
    results = nine.run(JOBS + "combinations", size=size, texts=texts, turn=size, seconds=600)
    assert all(result == results[0] for result in results)


def test_calls_in_flight_never_mix(nine):
    results = nine.run(JOBS + "in_flight", size=4, text=BALANCED)
    assert all(result == results[0] for result in results)


def test_gloo_takes_short_packets(nine):
    assert all(nine.run(JOBS + "short_packets", size=2))


@pytest.mark.parametrize("combination", [COMBINATIONS[-1], COMBINATIONS[2], COMBINATIONS[6]])
def test_statistics_add_up(nine, combination):
    for size in (1, 4, 7):
        found = nine.run(JOBS + "statistics", size=size, text=scheme_text(*combination))
        for phase in ("push", "pull"):
            phases = [stats["phases"][phase] for stats in found]
            assert sum(p["bytes_sent"] for p in phases) == sum(p["bytes_received"] for p in phases)
            assert sum(p["messages_sent"] for p in phases) == sum(p["messages_received"] for p in phases)
            for stats in phases:
                headers = stats["bytes_sent"] - sum(stats["formats_sent"].values())
                assert headers >= stats["messages_sent"] * MESSAGE_HEADER_BYTES
                assert (headers - stats["messages_sent"] * MESSAGE_HEADER_BYTES) % SEGMENT_HEADER_BYTES == 0
        for stats in found:
            assert stats["bytes_sent"] == sum(p["bytes_sent"] for p in stats["phases"].values())
            assert 0 < stats["density_in"] <= stats["density_out"] <= 1 and stats["units_out"] == found[0]["units_out"]
            assert stats["seconds"] > 0 and stats["phases"]["pull"]["imbalance"] >= 1


def test_ranks_with_different_schemes_all_get_one_error_that_names_them(nine):
    texts = [BALANCED, BALANCED, BALANCED.replace("push: auto", "push: coo")]
    (_, whole, _), *others = found = nine.run(JOBS + "error_of", size=6, call="other_schemes", texts=texts)
    assert "on ranks 0, 1, 3, 4, and " in whole and "on ranks 2, 5" in whole
    for kind, text, seconds in found:
        assert kind == "SynchronisationError" and "error[different-schemes]" in text
        assert seconds < 60
    assert {text for _, text, _ in others} == {whole.splitlines()[0] + " (rank 0 says more)"}


def test_what_all_ranks_find_wrong_is_told_at_length_by_one(nine, tmp_path):
    (tmp_path / "broken.zen").write_text("scheme broken { }")
    (_, whole, _), *others = nine.run(
        JOBS + "error_of", size=3, call="load_saved", directory=str(tmp_path / "broken.zen")
    )
    assert whole.count("\n") > 3 and "    1 | scheme broken" in whole
    for _, text, _ in others:
        assert all(line.endswith(" (rank 0 says more)") for line in text.splitlines()) and "missing-key" in text


def test_a_rank_that_cannot_load_is_named_to_the_others(nine, tmp_path):
    (tmp_path / "broken.zen").write_text("scheme broken { }")
    paths = {"path": "balanced", "broken": str(tmp_path / "broken.zen")}
    found = nine.run(JOBS + "error_of", size=3, call="one_fails_to_load", **paths)
    assert [kind for kind, _, _ in found] == ["SynchronisationError", "SchemeError", "SynchronisationError"]
    assert "error[peer-failed]: rank 1 could not load its scheme" in found[0][1]
    assert "missing-key" in found[1][1]


def test_an_artifact_for_another_size(nine, tmp_path):
    import zenc

    zenc.compile_text(BALANCED, ranks=4).save(tmp_path / "four")
    found = nine.run(JOBS + "error_of", size=3, call="load_saved", directory=str(tmp_path / "four"))
    assert "--ranks 3" in found[0][1]
    assert all(kind == "ArtifactError" and "error[wrong-size]" in text for kind, text, _ in found)
    assert all(
        kind == ""
        for kind, _, _ in nine.run(JOBS + "error_of", size=4, call="load_saved", directory=str(tmp_path / "four"))
    )


def test_a_group_that_failed_says_so():
    with Ranks(2) as ranks:
        assert ranks.run(JOBS + "after_a_failure", text=BALANCED) == ["group-broken"] * 2


@pytest.mark.parametrize(
    ("call", "arguments", "failing", "said"),
    [
        ("other_shapes", {"text": BALANCED}, (0, 1, 2), "units"),
        ("other_shapes_while_choosing", {}, (0, 1, 2), "[101, 108, 101] units"),
        ("one_does_not_come", {"text": BALANCED, "deadline": 3.0}, (1, 2), "error[deadline]"),
        ("one_skips_a_call", {"text": BALANCED, "deadline": 3.0}, (0, 2), "scheme combination"),
    ],
)
def test_ranks_that_do_not_do_the_same_get_an_error_each(call, arguments, failing, said):
    """Ranks count units by gloo while they choose, where a message that is too long would end a process."""
    with Ranks(3) as ranks:
        found = ranks.run(JOBS + "error_of", call=call, **arguments)
    for kind, text, seconds in (found[rank] for rank in failing):
        assert kind == "SynchronisationError" and seconds < 30
        if call == "one_skips_a_call":
            assert said in text and "step" in text and "rank" in text
        assert call != "one_does_not_come" or said in text
    assert not call.startswith("other") or any(
        "error[different-calls]" in text and said in text for _, text, _ in found
    )
