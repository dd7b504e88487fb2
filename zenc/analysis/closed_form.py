"""Formulas in the number of ranks n and in the densities d_k of the sums of k ranks, fitted to exact counts.

    Formula  = Term*                                        # the sum of its terms, times M
    Term     = Scalar x Family                              # coefficient(n) x the sum of d_k over the k of the family
    Scalar   = (a + b n + c n^2) / n^power  |  a + b log2(n)

A fit takes a few counts; by itself it is worth nothing. What ``fit_scalar`` and ``fit_volume`` return gives the counts
of all sizes that they were shown exactly, as fractions, at least two of which the fit did not use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import lcm

from zenc.analysis.volume import DENSE, Volume

MOST_TERMS = 3
UNUSED = 2
"""The least number of counts that are left to check a fit by."""


@dataclass(frozen=True, slots=True)
class Domain:
    """The numbers of ranks that a formula is for: multiples of the last of ``groups``, by powers of two or by any.

    ``groups`` are the ranks in a group of each inner tier, the innermost first.
    """

    groups: tuple[int, ...] = ()
    powers: bool = False

    @property
    def multiple(self) -> int:
        """The least number of ranks but for 1."""
        return self.groups[-1] if self.groups else 1

    def holds(self, n: int) -> bool:
        """Return whether ``n`` is in the domain."""
        factor, rest = divmod(n, self.multiple)
        return not rest and (not self.powers or factor.bit_count() == 1)

    def __str__(self) -> str:
        if self.powers:
            return "n a power of two" if self.multiple == 1 else f"n = {self.multiple} times a power of two"
        return "every n" if self.multiple == 1 else f"n a multiple of {self.multiple}"


@dataclass(frozen=True, slots=True)
class Polynomial:
    """``(a + b n + c n^2) / n^power``, its coefficients from the lowest."""

    coefficients: tuple[Fraction, ...]
    power: int

    def at(self, n: int) -> Fraction:
        """Return the value at ``n``."""
        above = sum((c * Fraction(n**i) for i, c in enumerate(self.coefficients)), Fraction(0))
        return above / Fraction(n**self.power)

    def __str__(self) -> str:
        scale = lcm(*(c.denominator for c in self.coefficients))
        above = _polynomial_text([int(c * scale) for c in self.coefficients])
        below = " ".join(([str(scale)] if scale > 1 else []) + ["n"] * self.power)
        if not below or above == "0":
            return above
        return f"{_grouped(above)}/{_grouped(below)}"


@dataclass(frozen=True, slots=True)
class Logarithm:
    """``constant + slope log2(n / group)``, rounded down or up where that is no power of two."""

    constant: Fraction
    slope: Fraction
    group: int = 1
    rounding: str = ""

    def at(self, n: int) -> Fraction:
        """Return the value at ``n``."""
        m = n // self.group
        return self.constant + self.slope * ((m - 1).bit_length() if self.rounding == "ceil" else m.bit_length() - 1)

    def __str__(self) -> str:
        of = "n" if self.group == 1 else f"n/{self.group}"
        log = f"{self.rounding}(log2({of}))" if self.rounding else f"log2({of})"
        text = log if self.slope == 1 else f"{self.slope} {log}"
        sign = "+" if self.constant > 0 else "-"
        return f"{text} {sign} {abs(self.constant)}" if self.constant else text


Scalar = Polynomial | Logarithm


@dataclass(frozen=True, slots=True)
class Family:
    """The k that a term sums over; ``falling``: d_k counts 1 / k times the coefficient."""

    text: str
    members: Callable[[int], list[int]]
    falling: bool = False

    def weight(self, k: int) -> Fraction:
        """Return the factor of d_k in the sum."""
        return Fraction(1, k) if self.falling else Fraction(1)


@dataclass(frozen=True, slots=True)
class Term:
    """A product: ``coefficient`` in n, and the sum of the densities of ``family``."""

    coefficient: Scalar
    family: Family

    def __str__(self) -> str:
        text = str(self.coefficient)
        if text == "1":
            return self.family.text
        is_sum = " + " in _outside(text) or " - " in _outside(text)
        return f"{f'({text})' if is_sum else text} {self.family.text}".strip()


@dataclass(frozen=True, slots=True)
class Formula:
    """A volume for every n; its text leaves out the factor M that all terms share."""

    terms: tuple[Term, ...]

    def at(self, n: int) -> Volume:
        """Return the volume among ``n`` ranks."""
        found: dict[int, Fraction] = {}
        for term in self.terms:
            coefficient = term.coefficient.at(n)
            for k in term.family.members(n):
                found[k] = found.get(k, Fraction(0)) + coefficient * term.family.weight(k)
        return {k: share for k, share in found.items() if share}

    def __str__(self) -> str:
        texts = [f"{term} M".strip() for term in self.terms]
        return " + ".join(texts).replace("+ -", "- ") or "0"


def fit_scalar(counts: Mapping[int, Fraction | int], domain: Domain) -> Scalar | None:
    """Return a scalar that equals ``counts`` at every size; None where no known form does."""
    points = [(n, Fraction(count)) for n, count in sorted(counts.items())]
    candidates: tuple[Scalar, ...] = (*_polynomials(points), *_logarithms(points, domain))
    return next((found for found in candidates if all(found.at(n) == value for n, value in points)), None)


def fit_volume(counts: Mapping[int, Volume], domain: Domain) -> Formula | None:
    """Return a formula that gives the volumes ``counts`` of every size; None where no known form does.

    With inner tiers d_k may be in it, for every n, where k is the size of a group of these.
    """
    largest = max(counts)
    support = set(counts[largest])
    if not support:
        return Formula(()) if not any(counts.values()) else None
    fitting = [family for family in _families(domain.groups) if support.issuperset(family.members(largest))]
    for number in range(1, MOST_TERMS + 1):
        for chosen in combinations(fitting, number):
            members = [k for family in chosen for k in family.members(largest)]
            if len(members) == len(set(members)) == len(support) and (found := _fit_terms(chosen, counts, domain)):
                return found
    return None


def _fit_terms(families: Sequence[Family], counts: Mapping[int, Volume], domain: Domain) -> Formula | None:
    """Fit coefficients for ``families`` where they do not overlap, and check them everywhere."""
    apart = {n: volume for n, volume in counts.items() if _disjoint(families, n)}
    terms = []
    for family in families:
        shares = {n: volume.get(family.members(n)[0], Fraction(0)) for n, volume in apart.items()}
        scaled = {n: share / family.weight(family.members(n)[0]) for n, share in shares.items()}
        coefficient = fit_scalar(scaled, domain)
        if coefficient is None:
            return None
        terms.append(Term(coefficient, family))
    found = Formula(tuple(terms))
    return found if all(found.at(n) == {k: s for k, s in counts[n].items() if s} for n in counts) else None


def _disjoint(families: Sequence[Family], n: int) -> bool:
    members = [family.members(n) for family in families]
    return all(members) and len({k for each in members for k in each}) == sum(map(len, members))


def _families(groups: Sequence[int]) -> Iterator[Family]:
    yield Family("", lambda n: [DENSE])
    yield Family("d", lambda n: [1])
    yield Family("d_n", lambda n: [n])
    yield Family("d_(n-1)", lambda n: [n - 1])
    yield Family("d_(n/2)", lambda n: [n // 2] if n % 2 == 0 else [])
    yield Family("(d + d_2 + d_3 + ... + d_(n-1))", lambda n: list(range(1, n)))
    yield Family("(d_2 + d_3 + ... + d_(n-1))", lambda n: list(range(2, n)))
    yield Family("(d_2 + d_3 + ... + d_n)", lambda n: list(range(2, n + 1)))
    yield Family("(d + d_2 + d_4 + ... + d_(n/2))", lambda n: _doublings(1, n))
    yield Family("(d + d_2/2 + d_4/4 + ... + d_(n/2)/(n/2))", lambda n: _doublings(1, n), falling=True)
    for group in groups:
        yield from _families_of(group)


def _families_of(g: int) -> Iterator[Family]:
    """Yield the families of an inner tier of ``g`` ranks, and of an outer one over the sums of g."""
    yield Family(f"d_{g}", lambda n: [g])
    yield Family(f"({_listed(range(1, g))})", lambda n: list(range(1, g)))
    yield Family(f"({_listed(_doublings(1, g))})", lambda n: _doublings(1, g))
    yield Family(f"(d_{g} + d_{2 * g} + d_{3 * g} + ... + d_(n-{g}))", lambda n: list(range(g, n, g)))
    yield Family(f"(d_{g} + d_{2 * g} + d_{4 * g} + ... + d_(n/2))", lambda n: _doublings(g, n))
    yield Family(f"(d_{g}/{g} + d_{2 * g}/{2 * g} + ... + d_(n/2)/(n/2))", lambda n: _doublings(g, n), falling=True)


def _doublings(first: int, end: int) -> list[int]:
    found = []
    while first < end:
        found.append(first)
        first *= 2
    return found


def _listed(ks: Sequence[int]) -> str:
    return " + ".join("d" if k == 1 else f"d_{k}" for k in ks)


def _polynomials(points: Sequence[tuple[int, Fraction]]) -> Iterator[Polynomial]:
    for degree, power in ((0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2)):
        if len(points) >= degree + 1 + UNUSED:
            values = [(n, value * n**power) for n, value in points[-(degree + 1) :]]
            yield Polynomial(_interpolated(values), power)


def _interpolated(points: Sequence[tuple[int, Fraction]]) -> tuple[Fraction, ...]:
    """Return the coefficients, from the lowest, of the polynomial through ``points`` (Lagrange)."""
    total = [Fraction(0)] * len(points)
    for i, (n, value) in enumerate(points):
        basis = [Fraction(1)]
        for j, (m, _) in enumerate(points):
            if j != i:
                shifted, kept = [Fraction(0), *basis], [*basis, Fraction(0)]
                basis = [(a - m * b) / (n - m) for a, b in zip(shifted, kept, strict=True)]
        total = [t + value * b for t, b in zip(total, basis, strict=True)]
    return tuple(total)


def _logarithms(points: Sequence[tuple[int, Fraction]], domain: Domain) -> Iterator[Logarithm]:
    if len(points) < 2 + UNUSED:
        return
    for rounding in ("",) if domain.powers else ("floor", "ceil"):
        unit = Logarithm(Fraction(0), Fraction(1), domain.multiple, rounding)
        (n, first), (m, last) = points[0], points[-1]
        if unit.at(n) != unit.at(m):
            slope = (last - first) / (unit.at(m) - unit.at(n))
            yield Logarithm(first - slope * unit.at(n), slope, domain.multiple, rounding)


def _polynomial_text(coefficients: Sequence[int]) -> str:
    text = ""
    for i, coefficient in reversed(list(enumerate(coefficients))):
        if coefficient:
            unit = ("", "n", "n^2")[i]
            size = str(abs(coefficient)) if abs(coefficient) != 1 or not unit else ""
            sign = (" - " if coefficient < 0 else " + ") if text else ("-" if coefficient < 0 else "")
            text += f"{sign}{size}{' ' if size and unit else ''}{unit}"
    return text or "0"


def _grouped(text: str) -> str:
    return f"({text})" if " " in text else text


def _outside(text: str) -> str:
    """Return ``text`` without its parentheses and their contents."""
    depth, found = 0, ""
    for letter in text:
        depth += (letter == "(") - (letter == ")")
        found += letter if depth == 0 else ""
    return found


def volume_text(volume: Volume) -> str:
    """Return a volume of one number of ranks in the notation of formulas: ``1/2 d M + 1/4 d_2 M``."""
    terms = [
        Term(Polynomial((share,), 0), Family({DENSE: "", 1: "d"}.get(k, f"d_{k}"), lambda n: []))
        for k, share in sorted(volume.items())
    ]
    return str(Formula(tuple(terms)))
