"""The settings of the environment that have few values, by their names; the first value is the usual one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType

from zenc.errors import Diagnostic, ZencError

SETTINGS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ZENC_ATTACH": ("1", "0"),
        "ZENC_SOCKETS": ("1", "0"),
        "ZENC_SHARED_MEMORY": ("1", "0"),
        "ZENC_GPU_CHECK": ("0", "1"),
        "ZENC_GPU_GRAPHS": ("1", "0"),
        "ZENC_DEBUG": ("0", "1"),
        "ZENC_SEQUENCE": ("table", "compiled"),
    }
)


def setting(name: str) -> str:
    """Return the value of the variable ``name``, one of its ``SETTINGS``; raises ZencError (``bad-environment``)."""
    value = os.environ.get(name) or SETTINGS[name][0]
    if value not in SETTINGS[name]:
        message = f"{name} is {' or '.join(SETTINGS[name])}, not {value!r:.60}"
        raise ZencError(Diagnostic("bad-environment", message, help="set it to one, or unset it"))
    return value


def is_on(name: str) -> bool:
    """Return whether the switch ``name`` is 1; raises as ``setting`` does."""
    return setting(name) == "1"


def unsound() -> dict[str, str]:
    """Return the variables that have none of their values, with their present ones."""
    given = {name: os.environ.get(name) or known[0] for name, known in SETTINGS.items()}
    return {name: value for name, value in given.items() if value not in SETTINGS[name]}


def ensure_sound() -> None:
    """Raise as ``setting`` does where a variable has none of its values."""
    for name in unsound():
        setting(name)
