"""Overlap of the gradients of ranks: two families of one parameter each, fitted to what the paper prints.

    words   unit i is held with 1 - exp(-t / (i + 1)^s), as the words of a corpus are: the exponent s is fitted
    core    all ranks share a part c of their units, and draw the others from all units: c is fitted. The first eighth
            holds as much as the paper says it holds at least, so that ranges are unevenly loaded

Of all ways to overlap, a core makes the densest sum of many ranks for a given sum of few.
"""

from collections.abc import Callable
from dataclasses import replace

from benchmarks.reproduce import SPARSITY
from zenc.gradients.profile import Profile, Range
from zenc.gradients.profile_generators import zipf

EIGHTHS = 8


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the place where an increasing function passes 0, by bisection."""
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (low, middle) if function(middle) > 0 else (middle, high)
    return (low + high) / 2


def words(density: float, exponent: float, units: int) -> Profile:
    """Return the profile of ranks that each hold ``density`` of the units by Zipf's law."""
    return zipf(density, exponent, units, name=f"words, s = {exponent:.3g}")


def core(density: float, share: float, units: int, first: float = SPARSITY["first_eighth"]) -> Profile:
    """Return the profile of ranks with ``share`` of their units in common; the first eighth has ``first`` of both."""
    densities = [density * EIGHTHS * first] + [density * EIGHTHS * (1 - first) / (EIGHTHS - 1)] * (EIGHTHS - 1)
    return Profile(f"core {share:.3g}", units, 1, "f32", None, tuple(_cored(d, share) for d in densities))


def _cored(density: float, share: float) -> Range:
    always = density * share
    return (1.0, always), ((density - always) / (1 - always), 1 - always)


def words_with(density: float, units: int, quantity: Callable[[Profile], float], value: float) -> float:
    """Return the exponent for which ``quantity``, which falls with it, is ``value``."""
    return root(lambda s: value - quantity(words(density, s, units)), 0.01, 6.0)


def core_with(density: float, units: int, quantity: Callable[[Profile], float], value: float) -> float:
    """Return the core for which ``quantity``, which falls with it, is ``value``."""
    return root(lambda c: value - quantity(core(density, c, units)), 0.0, 1.0)


def densest_sum(density: float, of: int, found: float, ranks: int) -> float:
    """Return the densest sum of ``ranks`` by gradients of which ``of`` sum up to ``found`` and one to ``density``.

    The sum of k ranks, on average over which k, is concave in k whatever the gradients are: what one more rank adds
    never grows. So beyond ``of`` ranks each adds what those before have added on average, or less.
    """
    return min(1.0, found + (ranks - of) * (found - density) / (of - 1))


def of_machine(profile: Profile, gpus: int) -> Profile:
    """Return the profile of machines that each sum up ``gpus`` ranks."""
    ranges = tuple(tuple((1 - (1 - p) ** gpus, share) for p, share in classes) for classes in profile.ranges)
    return replace(profile, ranges=ranges)


def of_values(profile: Profile, values: float) -> Profile:
    """Return ``profile`` of rows as one of as many single values, as the paper counts them."""
    return replace(profile, units=round(values), width=1)
