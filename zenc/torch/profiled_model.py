"""Model profiles beside the models that train: a check that a profile is of the model's parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping

import torch

from zenc.common.wording import count
from zenc.errors import Diagnostic, TensorError
from zenc.simulator.training.model_profile import ModelProfile, read_model_profile

MOST_NAMED = 3
"""Most differences that are told one by one."""
HELP = "profile this model (zenc.attach(ddp, dry_run=True); handle.profile.save(FILE)), and search its strategy anew"


def ensure_profiled(trained: Mapping[str, torch.nn.Parameter], profile: ModelProfile | str | os.PathLike[str]) -> None:
    """Raise TensorError (``other-model``) unless ``profile``, or the one in that file, is of those ``trained``."""
    here = {name: tuple(each.shape) for name, each in trained.items()}
    read = profile if isinstance(profile, ModelProfile) else read_model_profile(profile)
    ensure_same(here, {each.name: tuple(each.shape) for each in read.parameters})


def ensure_same(here: Mapping[str, tuple[int, ...]], there: Mapping[str, tuple[int, ...]]) -> None:
    """Raise TensorError (``other-model``) where the parameters ``here``, name -> shape, are not those of a profile.

    ``there``: those of the profile. The first differences are named, in the order of the model.
    """
    names = dict.fromkeys((*here, *there))
    found = [_difference(name, here, there) for name in names if here.get(name) != there.get(name)]
    if not found:
        return
    more = len(found) - MOST_NAMED
    notes = (*found[:MOST_NAMED], *([f"and {count(more, 'other difference')}"] if more > 0 else []))
    trained = f"{count(len(here), 'parameter')} to train"
    message = f"the profile is of another model: it has {count(len(there), 'parameter')}, and this model {trained}"
    raise TensorError(Diagnostic("other-model", message, notes=notes, help=HELP))


def _difference(name: str, here: Mapping[str, tuple[int, ...]], there: Mapping[str, tuple[int, ...]]) -> str:
    if name not in there:
        return f"'{name}' of the shape {list(here[name])} is not in the profile"
    if name not in here:
        return f"'{name}' is in the profile alone"
    return f"'{name}' has the shape {list(here[name])}, and {list(there[name])} in the profile"
