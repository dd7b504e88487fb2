"""Profiles in files: one JSON for all parameters of a model, read without trust.

    {"zenc_profiles": 1, "profiles": [{"name": "embedding.weight", "units": 50000, "width": 64, "dtype": "f32",
                                       "ranks": 8, "recorded": {"steps": 12, ...},
                                       "ranges": [[[0.9, 0.01], [0.002, 0.99]], ...]}, ...]}

``ranges`` are equal contiguous ranges of the units; each lists pairs of a probability, and the share of the range's
units that have it. ``ranks`` and ``recorded`` are null for profiles that were not recorded; ``recorded`` may be
missing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from zenc.common.json_codec import Codec
from zenc.common.untrusted import read_json
from zenc.common.versioned import PROFILES
from zenc.errors import CostError, Diagnostic, first_line
from zenc.gradients.profile import Profile

MOST_BYTES = 1 << 28
"""Most bytes of a file: a profile takes a megabyte at most, and a model has a few tables."""
MOST_PROFILES = 4096
_HELP = "`zenc profile draw` writes such a file, and so does zenc.Profiler.save"


def dump_profiles(profiles: Iterable[Profile], model: dict[str, Any] | None = None) -> str:
    """Return the text of a file with ``profiles``, one a line, and data of their ``model``; it ends in a line break."""
    lines = [json.dumps(profile.to_json(), separators=(",", ":"), allow_nan=False) for profile in profiles]
    about = f'"model": {json.dumps(model, allow_nan=False)},\n' if model else ""
    return f'{{"{PROFILES.key}": {PROFILES.version}, {about}"profiles": [\n' + ",\n".join(lines) + "\n]}\n"


def read_profiles(path: str | os.PathLike[str], names: Iterable[str] | None = None) -> dict[str, Profile]:
    """Return the profiles in a file by name, all or those called ``names``; raises CostError (``bad-profile``)."""
    found = profiles_in(path, parsed(path))
    return {name: _called(name, found, path) for name in names} if names else found


def profiles_in(path: str | os.PathLike[str], data: Any, none: bool = False) -> dict[str, Profile]:
    """Return the profiles in ``data``, to which a file was ``parsed``, by name; ``none``: there may be none."""
    if not PROFILES.is_form_of(data):
        raise _bad(f"{path} is JSON, but holds no profiles")
    PROFILES.ensure(data, str(path))
    entries = data.get("profiles")
    if not isinstance(entries, list) or not (entries or none):
        raise _bad(f"{path} lists no profiles")
    if len(entries) > MOST_PROFILES:
        raise _bad(f"{path} holds {len(entries):,} profiles, and a model has at most {MOST_PROFILES:,} tables")
    profiles = [_profile(f"{path}, profile {number}", entry) for number, entry in enumerate(entries)]
    named = {profile.name: profile for profile in profiles}
    if len(named) < len(profiles):
        raise _bad(f"{path} holds two profiles of one name")
    return named


def parsed(path: str | os.PathLike[str]) -> Any:
    """Return the JSON data in a file, unchecked; raises CostError (``bad-profile``)."""
    try:
        return read_json(path, MOST_BYTES)
    except (OSError, ValueError) as error:
        raise _bad(f"{path} holds no profiles: {first_line(error)}") from error


def _called(name: str, found: dict[str, Profile], path: str | os.PathLike[str]) -> Profile:
    if name not in found:
        near = get_close_matches(name, found, 1)
        names = ", ".join(repr(each) for each in list(found)[:10])
        help = f"did you mean '{near[0]}'?" if near else None
        raise _bad(f"{path} has no profile '{name}', but {names}", help)
    return found[name]


def _profile(place: str, entry: Any) -> Profile:
    try:
        found: Profile = Codec().decode(Profile, entry)
    except ValueError as error:
        raise _bad(f"{place}: {error}") from error
    return found


def _bad(message: str, help: str | None = _HELP) -> CostError:
    return CostError(Diagnostic("bad-profile", message, help=help))
