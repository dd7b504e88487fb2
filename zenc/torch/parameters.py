"""The parameters of a model that a scheme can serve: those with sparse gradients, and dense ones that are asked for."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable

import torch
from torch import nn

from zenc.errors import Diagnostic, SchemeError, ZencError


def sparse_parameters(model: nn.Module) -> dict[str, list[nn.Module]]:
    """Name -> the modules that use it, of the parameters whose gradients are sparse."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for module in model.modules():
        for parameter in module.parameters(recurse=False):
            if parameter.requires_grad:
                owners.setdefault(id(parameter), []).append((type(module).__name__, module))
    found = {}
    for name, parameter in model.named_parameters():
        users = owners.get(id(parameter), [])
        sparse = [module for _, module in users if getattr(module, "sparse", False) is True]
        if sparse and len(sparse) != len(users):
            raise _tied(name, [kind for kind, module in users if module not in sparse])
        if sparse:
            found[name] = sparse
    return found


def dense_parameters(model: nn.Module, names: Iterable[str], sparse: Collection[str]) -> dict[str, torch.nn.Parameter]:
    """Name -> parameter, of the dense ones that the caller asks for."""
    known = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name in sparse:
            message = f"'{name}' has sparse gradients, which go through the scheme anyway"
            raise SchemeError(Diagnostic("sparse-already", message, help="leave it out of dense="))
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            help = f"did you mean '{near[0]}'?" if near else "model.named_parameters() has the names"
            raise SchemeError(
                Diagnostic("unknown-parameter", f"the model has no parameter '{name}' to train", help=help)
            )
    return {name: known[name] for name in wanted}


def _tied(name: str, others: list[str]) -> ZencError:
    message = f"'{name}' is a sparse embedding's and also used by {', '.join(others)}, which gives it a dense gradient"
    help = "use sparse=False for this embedding, or weights of its own for the other module"
    return SchemeError(Diagnostic("tied-to-dense", message, help=help))
