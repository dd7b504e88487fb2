"""Tables that share a call in DDP: selection, unchanged bits, reports, and errors by name."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fuzz import fuzzed
from zenc.torch.strategy.table_groups import TableGroups

JOBS = "tests.torch.table_jobs:"


@dataclass
class Bucket:
    """The only bucket of a parameter, as DDP's."""

    at: int
    parameter: torch.Tensor
    last: bool

    def index(self) -> int:
        return self.at

    def is_last(self) -> bool:
        return self.last

    def parameters(self) -> list[torch.Tensor]:
        return [self.parameter]

    def buffer(self) -> torch.Tensor:
        return self.parameter.to_sparse()


def steps_of(groups: TableGroups, order: list[torch.Tensor]) -> list[tuple[list[list[int]], int]]:
    """Return the tables in each group of two steps, and how many groups ended only with the bucket after them."""
    found = []
    for _ in range(2):
        made: list[list[int]] = [[]]
        late = 0
        for at, parameter in enumerate(order):
            about = groups.about(Bucket(at, parameter, at == len(order) - 1))  # type: ignore[arg-type]
            if about.begins and made[-1]:
                late += 1
                made.append([])
            made[-1].append(at)
            if about.ends:
                made.append([])
        found.append(([group for group in made if group], late))
    return found


@fuzzed(60)
@given(st.lists(st.tuples(st.integers(1, 40), st.sampled_from(["a", "a", "b", None])), min_size=1), st.integers(0, 400))
def test_groups_are_neighbours_of_a_kind_as_many_as_fit(drawn: list[tuple[int, str | None]], limit: int) -> None:
    order = [torch.zeros(rows) for rows, _ in drawn]
    kinds = [kind for _, kind in drawn]
    known = {id(table): kind for table, kind in zip(order, kinds, strict=True) if kind}
    (first, _), (second, late) = steps_of(TableGroups(known, limit), order)
    assert first == second and late == 0, "once buckets are known a group ends with its last table"
    assert [at for group in first for at in group] == list(range(len(order)))
    for group, after in zip(first, [*first[1:], []], strict=True):
        bytes = sum(4 * drawn[at][0] for at in group)
        assert len(group) == 1 or (len({kinds[at] for at in group}) == 1 and kinds[group[0]] and bytes <= limit)
        if after and kinds[group[0]] is not None and kinds[after[0]] == kinds[group[0]]:
            assert bytes + 4 * drawn[after[0]][0] > limit, "the next one had no room"


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
