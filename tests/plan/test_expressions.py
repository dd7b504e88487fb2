"""Evaluation for many ranks at once agrees with plain Python integers, rank by rank."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.fuzz import tried
from zenc.language.formatter import expression_text
from zenc.language.parse import parse_expression
from zenc.language.schedule import Apply, Binary, Expression, Integer, Unary, Variable
from zenc.plan.expressions import LIMIT, EvaluationError, condition, evaluate, scope_of, spread

SIZE = 9
SCOPE = scope_of(SIZE, SIZE, False).bind("k", -5)


class NoValueError(Exception):
    """The error of the model, with the expected id."""


def model(e: Expression, rank: int) -> int:
    """Return the value for one rank, by the rules of the language and Python's integers without bounds."""
    match e:
        case Integer(value):
            return bounded(value)
        case Variable(name):
            return {"rank": rank, "size": SIZE, "parts": SIZE, "one_shot": 0, "k": -5}[name]
        case Unary("-", operand):
            return -model(operand, rank)
        case Unary(_, operand):
            return int(model(operand, rank) == 0)
        case Binary("and", left, right):
            return int(bool(model(left, rank)) and bool(model(right, rank)))
        case Binary("or", left, right):
            return int(bool(model(left, rank)) or bool(model(right, rank)))
        case Binary(operator, left, right):
            return binary(operator, model(left, rank), model(right, rank))
        case Apply(function, arguments):
            return called(function, [model(argument, rank) for argument in arguments])


def called(function: str, values: list[int]) -> int:
    if function == "log2":
        if values[0] < 1:
            raise NoValueError("bad-log2")
        return values[0].bit_length() - 1
    return min(values) if function == "min" else max(values)


def binary(operator: str, left: int, right: int) -> int:
    if operator in ("/", "mod") and right == 0:
        raise NoValueError("division-by-zero")
    if operator in ("<<", ">>") and not 0 <= right <= 62:
        raise NoValueError("bad-shift")
    value = {
        "==": lambda: int(left == right), "!=": lambda: int(left != right), "<": lambda: int(left < right),
        "<=": lambda: int(left <= right), ">": lambda: int(left > right), ">=": lambda: int(left >= right),
        "|": lambda: left | right, "^": lambda: left ^ right, "&": lambda: left & right,
        "<<": lambda: left << right, ">>": lambda: left >> right, "+": lambda: left + right,
        "-": lambda: left - right, "*": lambda: left * right, "/": lambda: left // right,
        "mod": lambda: left - abs(right) * (left // abs(right)),
    }[operator]()  # fmt: skip
    return bounded(value)


def bounded(value: int) -> int:
    if abs(value) >= LIMIT:
        raise NoValueError("number-too-large")
    return value


LEAVES = (
    st.sampled_from(["rank", "size", "k", "one_shot"]).map(Variable)
    | st.integers(0, 12).map(Integer)
    | st.sampled_from([30, 61, 62, 63, 64, 2**31, 2**32 - 1, 2**53 + 1, 2**61, 2**62 - 1, 2**62, 2**64 - 1]).map(
        Integer
    )
)
OPERATORS = ("or", "and", "==", "!=", "<", "<=", ">", ">=", "|", "^", "&", "<<", ">>", "+", "-", "*", "/", "mod")
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: (
        st.builds(Binary, st.sampled_from(OPERATORS), inner, inner)
        | st.builds(Unary, st.sampled_from(["-", "not"]), inner)
        | inner.map(lambda e: Apply("log2", (e,)))
        | st.tuples(st.sampled_from(["min", "max"]), inner, inner).map(lambda t: Apply(t[0], t[1:]))
    ),
    max_leaves=9,
)


@settings(max_examples=tried(600), deadline=None)
@given(EXPRESSIONS)
def test_all_ranks_at_once_as_each_alone(expression):
    expected, wrong = [], set()
    for rank in range(SIZE):
        try:
            expected.append(model(expression, rank))
        except NoValueError as error:
            wrong.add(str(error))
    try:
        found = spread(evaluate(expression, SCOPE), SCOPE).tolist()
    except EvaluationError as error:
        assert error.diagnostic.id in wrong
        return
    assert not wrong and found == expected


@settings(max_examples=tried(300), deadline=None)
@given(EXPRESSIONS)
def test_text_means_the_same(expression):
    again = parse_expression(expression_text(expression))
    for rank in range(0, SIZE, 4):
        try:
            value = model(expression, rank)
        except NoValueError:
            with pytest.raises(NoValueError):
                model(again, rank)
        else:
            assert model(again, rank) == value


def value_of(text: str) -> list[int]:
    return spread(evaluate(parse_expression(text), SCOPE), SCOPE).tolist()


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(rank - 1) mod size", [8, 0, 1, 2, 3, 4, 5, 6, 7]),
        ("(0 - rank) / 2", [0, -1, -1, -2, -2, -3, -3, -4, -4]),
        ("(0 - rank) mod (0 - 4)", [0, 3, 2, 1, 0, 3, 2, 1, 0]), ("rank ^ 1", [1, 0, 3, 2, 5, 4, 7, 6, 9]),
        ("-rank >> 1", [0, -1, -1, -2, -2, -3, -3, -4, -4]), ("log2(rank + 1)", [0, 1, 1, 2, 2, 2, 2, 3, 3]),
        ("1 << rank", [1, 2, 4, 8, 16, 32, 64, 128, 256]),
        ("rank > 0 and 8 / rank > 2", [0, 1, 1, 0, 0, 0, 0, 0, 0]),
        ("rank == 0 or 8 / rank > 2", [1, 1, 1, 0, 0, 0, 0, 0, 0]), ("not rank", [1, 0, 0, 0, 0, 0, 0, 0, 0]),
        ("min(rank, 4) + max(rank, 6)", [6, 7, 8, 9, 10, 10, 10, 11, 12]), ("7", [7] * 9),
    ],
)  # fmt: skip
def test_values_by_hand(text, values):
    assert value_of(text) == values


@pytest.mark.parametrize("bits", range(62))
def test_log2_is_exact_at_powers_of_two(bits):
    near = np.array([value for value in ((1 << bits) - 1, 1 << bits, (1 << bits) + 1) if value > 0], dtype=np.int64)
    scope = scope_of(len(near), 1, False).bind("x", near)
    expected = [int(value).bit_length() - 1 for value in near]
    assert spread(evaluate(parse_expression("log2(x)"), scope), scope).tolist() == expected


@pytest.mark.parametrize(
    ("text", "id", "rank"),
    [
        ("8 / (rank - 3)", "division-by-zero", 3), ("8 mod (rank - 3)", "division-by-zero", 3),
        ("log2(4 - rank)", "bad-log2", 4), ("1 << (54 + rank)", "number-too-large", 8),
        ("rank << 62", "number-too-large", 1), ("1 >> (60 + rank)", "bad-shift", 3),
        ("1 << (rank - 2)", "bad-shift", 0), ("(1 << 61) * rank", "number-too-large", 2),
        ("(1 << 61) + (1 << 60) * (rank mod 3)", "number-too-large", 2), ("x + 1", "unknown-name", None),
    ],
)  # fmt: skip
def test_what_has_no_value_names_a_rank(text, id, rank):
    with pytest.raises(EvaluationError) as caught:
        value_of(text)
    assert caught.value.diagnostic.id == id
    assert rank is None or caught.value.diagnostic.message.endswith(f"for rank {rank}")
    assert caught.value.diagnostic.span is not None


def test_a_narrower_scope_keeps_names_together():
    inner = SCOPE.bind("twice", evaluate(parse_expression("2 * rank"), SCOPE)).where(np.arange(SIZE) % 3 == 1)
    assert inner.ranks.tolist() == [1, 4, 7]
    assert spread(evaluate(parse_expression("twice - rank"), inner), inner).tolist() == [1, 4, 7]
    assert condition(parse_expression("twice > 2"), inner).tolist() == [False, True, True]


def test_no_ranks_have_no_values():
    nobody = SCOPE.where(np.zeros(SIZE, dtype=bool))
    assert spread(evaluate(parse_expression("rank / 0 + 1"), nobody), nobody).tolist() == []
