"""Tables that share a call in DDP: it changes no bit, the log tells of it, and errors have names."""

from __future__ import annotations

JOBS = "tests.torch.table_jobs:"


def test_joined_tables_train_bit_for_bit_as_in_calls_of_their_own(four) -> None:
    """Five tables take three calls, as one has another width; a step accumulates, and announced tables are alone."""
    results = four.run(JOBS + "joined_and_alone", size=3)
    assert all(result == results[0] for result in results)
    calls = {way: found["calls"] for way, found in results[0].items()}
    assert calls == {"alone": [5] * 4, "joined": [3] * 4, "limited": [5] * 4, "auto": [3] * 4, "announced": [5] * 4}
    assert len({tuple(found["bits"]) for way, found in results[0].items() if way != "auto"}) == 1


def test_what_is_told_of_a_joined_call(four) -> None:
    """Each name finds the one entry; a step that a profiler samples has a call for each table."""
    told = four.run(JOBS + "told_of_joined", size=2)[0]
    assert told["names"] == ["a.weight ... b.weight", "c.weight ... d.weight", "wide.weight"]
    assert told["of c"] == told["of d"] and set(told["of c"]["tables"]) == {"c.weight", "d.weight"}
    assert sum(told["of c"]["tables"].values()) == told["of c"]["units_out"] and told["unknown"] == "UnknownReport"
    assert told["got c"] == told["of c"] and told["there"] == [True, False]
    assert told["sampled"] == sorted(["a.weight", "b.weight", "c.weight", "d.weight", "wide.weight"])
    assert told["profiles"] == told["sampled"]


def test_an_error_in_a_joined_call_names_the_table_and_reaches_all(four) -> None:
    own, other = four.run(JOBS + "row_of_no_table", size=2)
    assert own == ("unit-out-of-range", "row 60 is not one of the 60 of 'c.weight'")
    assert other[0] in ("peer-lost", "group-broken")
