"""The doctor: what zenc needs of this machine, each thing tried and not only looked up.

``examine`` gives a Finding for each, in the order in which things are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zenc.doctor.finding import Finding, of_error
from zenc.errors import ZencError


def examine() -> Iterator[Finding]:
    """Everything that zenc needs here, one finding after the other: some take a second, so show each at once.

    Raises nothing: what fails is a finding.
    """
    from zenc.doctor import gpus, installation, kernels, network

    yield from _tried("zenc", installation.own_files)
    yield from _tried("torch", installation.torch_version)
    yield from _tried("compiler", kernels.compiler)
    yield from _tried("cache", kernels.cache)
    yield from _tried("kernels", kernels.trial)
    yield from _tried("network", network.interface)
    yield from _tried("deadline", installation.deadline)
    yield from _tried("gpus", gpus.devices)
    yield from _tried("gpu compiler", gpus.device_compiler)
    yield from _tried("nccl", gpus.nccl)
    yield from _tried("plots", installation.plots)


def _tried(name: str, look: Callable[[], Finding]) -> Iterator[Finding]:
    try:
        yield look()
    except ZencError as error:
        yield of_error(name, error)
    except ImportError as problem:  # PyTorch, which has a finding of its own
        yield Finding(name, "broken", f"can't be looked at: {problem}")
