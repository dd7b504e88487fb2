"""Errors of Python that come of an argument of a wrong type: they name it, and cost a call that works nothing."""

from __future__ import annotations

import builtins
import reprlib
import sys
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import wraps
from numbers import Integral, Real
from types import SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from zenc.errors import Diagnostic, ZencError

if TYPE_CHECKING:
    import inspect

P = ParamSpec("P")
R = TypeVar("R")
NUMBERS: Mapping[object, type] = {int: Integral, float: Real}
"""Numbers of other libraries are as good as Python's."""


def names_wrong_types(function: Callable[P, R]) -> Callable[P, R]:
    """Return ``function``, which says which of its arguments has a wrong type where an error of Python came of it.

    Types are those that ``function`` declares. Raises ZencError ``wrong-argument`` in place of TypeError, ValueError,
    AttributeError and IndexError; if all arguments have their types, the error is not theirs and stays as it is.
    """

    @wraps(function)
    def named(*given: P.args, **options: P.kwargs) -> R:
        try:
            return function(*given, **options)
        except (TypeError, ValueError, AttributeError, IndexError) as problem:
            if wrong := _wrong_argument(function, given, options):
                raise ZencError(wrong) from problem
            raise

    return named


def ensure_types(function: Callable[..., Any], **options: Any) -> None:
    """Raise ZencError ``wrong-argument`` unless these ``options`` of ``function`` have the types that it declares."""
    if wrong := _wrong_argument(function, (), options):
        raise ZencError(wrong)


def _wrong_argument(
    function: Callable[..., Any], given: tuple[Any, ...], options: Mapping[str, Any]
) -> Diagnostic | None:
    import inspect

    try:
        bound = inspect.signature(function).bind_partial(*given, **options)
    except TypeError:
        return None
    for name, value, kind, home in _declared(function, bound):
        try:
            is_right = _fits(value, _Names(vars(sys.modules[home])).evaluated(kind))
        except (NameError, TypeError, AttributeError):  # a type that nothing loaded has
            continue
        if not is_right:
            of = function.__qualname__.removesuffix(".__init__")
            message = f"{name} of zenc.{of} is {kind}, not {reprlib.repr(value)}"
            return Diagnostic("wrong-argument", message, help=f"help(zenc.{of}) says what it means")
    return None


class _Names(dict[str, Any]):
    """Names of a module, and those that it imports for type checkers alone, as any module of zenc has them."""

    def __getitem__(self, name: str) -> Any:
        found = self.get(name, getattr(builtins, name, None))
        for module, others in list(sys.modules.items()):
            if found is None and module.startswith("zenc."):
                found = getattr(others, name, None)
        if found is None:
            raise KeyError(name)
        return self.evaluated(found) if isinstance(found, str) else found

    def evaluated(self, kind: str) -> Any:
        """Return the type that the text ``kind`` means, whose aliases may be texts, too."""
        return typing.get_type_hints(SimpleNamespace(__annotations__={"kind": kind}), {}, self)["kind"]


def _declared(function: Callable[..., Any], bound: inspect.BoundArguments) -> Iterator[tuple[str, Any, str, str]]:
    """Yield the name and the value of each argument, and its type as text of which module; ``**given`` one by one."""
    for name, value in bound.arguments.items():
        parameter = bound.signature.parameters[name]
        if parameter.kind is parameter.VAR_KEYWORD and parameter.annotation.startswith("Unpack["):
            options = vars(sys.modules[function.__module__])[parameter.annotation[len("Unpack[") : -1]]
            kinds = {key: kind.__forward_arg__ for key, kind in options.__annotations__.items()}
            yield from ((key, each, kinds[key], options.__module__) for key, each in value.items() if key in kinds)
        elif isinstance(parameter.annotation, str) and parameter.kind is not parameter.VAR_KEYWORD:
            yield name, value, parameter.annotation, function.__module__


def _fits(value: object, kind: Any) -> bool:
    """Return whether ``value`` is of the type ``kind``; items are looked at where that uses nothing up."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or isinstance(kind, TypeVar):
        return True
    if origin in (typing.Union, UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is typing.Literal:
        return value in inner
    if origin is None:
        return isinstance(value, NUMBERS.get(kind, kind)) and not (kind in NUMBERS and isinstance(value, bool))
    if not isinstance(value, origin):
        return False
    if isinstance(value, Mapping) and len(inner) == 2:
        return all(_fits(key, inner[0]) and _fits(each, inner[1]) for key, each in value.items())
    if isinstance(value, tuple) and origin is tuple and len(inner) > 1 and inner[-1] is not ...:
        return len(value) == len(inner) and all(map(_fits, value, inner))
    if isinstance(value, (list, tuple, set, frozenset, dict)) and len(inner) == 1 and issubclass(origin, Iterable):
        return all(_fits(each, inner[0]) for each in value)
    return not isinstance(value, (str, bytes)) or (isinstance(value, str) and inner == (str,))
