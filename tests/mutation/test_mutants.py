"""Mutants of the mutation check: what it breaks, and that it breaks nothing else."""

import ast
import json
import random
import re

import pytest

from tests.mutation.mutants import chosen, edits, mutant_of
from tests.mutation.nearest import WHOLE, nearest
from tests.mutation.run import LEAST, RESULT, ROOT, TYPES, UNDECIDED, equivalents, files_of

PYTHON = '''"""Doc 1."""
@frozen(slots=True)
def f(a: int | None, b: float = 2) -> set[int] | None:
    """Two."""
    assert a < b
    if not (a <= b and b in c) or (a) - b == 7:
        raise Wrong(a, b)
    self.x[0] = f"{a + b}"
    return a is not b
'''
PYTHON_BROKEN = [
    (3, "2 -> 3"), (6, "not removed"), (6, "<= -> <"), (6, "and -> or"), (6, "in -> not in"), (6, "or -> and"),
    (6, "- -> +"), (6, "== -> !="), (6, "7 -> 8"), (7, "statement removed"), (7, "arguments swapped"),
    (8, "statement removed"), (8, "0 -> 1"), (9, "is not -> is"),
]  # fmt: skip
CPP = """#include <a> // 1 + 1
/* 2 < 3
   4 < 5 */
template <int N = 6>
void f(const T* x) {
  for (u64 i = 0; i < n && "a < b"; ++i)  // 7
    x[i] += g(i, u64{8});
  close(x->y);
  return x * y;
}
"""
CPP_BROKEN = [
    (6, "0 -> 1"), (6, "< -> <="), (6, "&& -> ||"), (7, "8 -> 9"), (7, "statement removed"), (8, "statement removed"),
    (9, "* -> +"),
]  # fmt: skip


@pytest.mark.parametrize(("path", "text", "broken"), [("a.py", PYTHON, PYTHON_BROKEN), ("a.h", CPP, CPP_BROKEN)])
def test_what_is_broken_of_a_text(path, text, broken):
    found = [mutant_of(path, text.encode(), edit) for edit in edits(path, text.encode())]
    assert sorted((each.line, each.what) for each in found) == sorted(broken)
    assert all(each.before != each.after for each in found)


def after(text: str) -> list[str]:
    return [mutant_of("a.py", text.encode(), edit).after for edit in edits("a.py", text.encode())]


def test_arguments_change_places_and_statements_leave_a_gap():
    assert after("x = f(a [i], g(b),\n  c)\n") == ["x = f(g(b), a [i],"]
    assert after("if x:\n    f(\n  )\n") == ["pass"]


def test_mutants_of_the_core_are_python_and_drawn_alike():
    files = random.Random(3).sample(files_of(ROOT), 25)
    drawn = chosen(ROOT, files, seed=5, count=60)
    assert drawn == chosen(ROOT, files[::-1], seed=5, count=60) and len({(m.path, m.line) for m in drawn}) == 60
    for mutant in drawn:
        whole = (ROOT / mutant.path).read_bytes()
        broken = whole[: mutant.edit.start] + mutant.edit.text + whole[mutant.edit.end :]
        assert whole.splitlines()[mutant.line - 1].decode().strip() == mutant.before != mutant.after
        if mutant.path.endswith(".py"):
            assert ast.dump(ast.parse(broken)) != ast.dump(ast.parse(whole)), mutant


def test_the_nearest_tests_are_those_of_the_file():
    assert nearest(ROOT, "zenc/scheme/resolve.py")[0][0] == "tests/scheme/test_resolve.py"
    assert nearest(ROOT, "templates/cpu/zenc_cpu/merge/merge.h")[0][0] == "tests/targets/cpu/test_merge.py"
    for path in files_of(ROOT)[::500]:
        first, others = nearest(ROOT, path)
        assert WHOLE[0] in first and not set(first) & set(others)


def test_the_result_is_what_the_page_says():
    """Enough mutants are noticed, the counts add up, and each that can't be noticed has a reason."""
    told = json.loads(RESULT.read_text("utf-8"))
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    said = re.search(r"Of (\d+) that a run has tried\s+types or tests notice (\d+), (\d+) are undecided", page)
    assert said and [int(number) for number in said.groups()] == [told["tried"], told["noticed"], told["undecided"]]
    assert told["noticed"] >= LEAST * told["mutants"] and told["tried"] == len(told["each"])
    assert told["mutants"] + told["equivalent"] + told["undecided"] == told["tried"]
    by = [each["noticed_by"] for each in told["each"] if "noticed_by" in each]
    assert sum(test not in (None, UNDECIDED) for test in by) == told["noticed"]
    assert all(len(why) > 20 for why in equivalents().values())


def test_what_has_noticed_a_mutant_is_still_there():
    """Each test that the report names stands in its file."""
    each = json.loads(RESULT.read_text("utf-8"))["each"]
    for file, _, name in (test["noticed_by"].partition("::") for test in each if "noticed_by" in test):
        path = ROOT / file
        assert file == TYPES or path.is_dir() or f"def {name.partition('[')[0]}" in path.read_text("utf-8"), file
