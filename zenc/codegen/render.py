"""Sources from a plan: the templates of a target, filled with the few facts that are not known to its headers.

Templates are thin: the mapping with its seed, instantiations, entry points. The algorithms are static headers. Nothing
that merely names a plan (its scheme, parameters, number of ranks or digest) is generated: plans of one mapping share
one compiled unit, and no text of a user reaches a compiler.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal

from zenc.codegen.templates import TEMPLATE_SUFFIX, environment, template_names
from zenc.errors import BuildError, Diagnostic
from zenc.plan.ir import Plan
from zenc.scheme.model import HierarchicalHash, Holders, Permutation

MappingKind = Literal["contiguous", "permutation", "hierarchical_hash", "holders"]


@dataclass(frozen=True, slots=True)
class UnitInputs:
    """The inputs of ``kernels.*.j2``; ``seed`` has 64 bits. Numbers that a mapping does not use are 0."""

    mapping: MappingKind
    seed: int = 0
    k: int = 0
    r1: float = 0.0
    r2: float = 0.0
    block: int = 0

    @classmethod
    def of(cls, plan: Plan) -> UnitInputs:
        """The inputs for ``plan``."""
        match plan.mapping:
            case Permutation(seed, block):
                return cls("permutation", seed, block=block or 0)
            case HierarchicalHash(k, r1, r2, seed):
                return cls("hierarchical_hash", seed, k, r1, r2)
            case Holders():
                return cls("holders")
        return cls("contiguous")


def render(inputs: UnitInputs, target: str = "cpu") -> dict[str, str]:
    """The sources of one compiled unit: file name -> text, one for each template of ``target``.

    Raises BuildError (``unknown-target``, ``unsafe-text``).
    """
    names = template_names(target)
    if not names:
        raise BuildError(Diagnostic("unknown-target", f"there are no templates for the target {target!r}"))
    values = asdict(inputs)
    jinja = environment().overlay()
    jinja.filters.update(word=word, count=count, real=real)
    return {_file_name(name): jinja.get_template(name).render(values) for name in names}


def _file_name(template: str) -> str:
    return template.rpartition("/")[2].removesuffix(TEMPLATE_SUFFIX)


def word(number: int) -> str:
    """An unsigned 64-bit literal. Raises BuildError for numbers that do not fit."""
    if not 0 <= number < 1 << 64:
        message = f"{number} is no seed: it has to be an integer of 64 bits, 0 or more"
        raise BuildError(Diagnostic("unsafe-text", message))
    return f"{number:#x}ULL"


def count(number: int) -> str:
    """A small positive integer. Raises BuildError for anything else."""
    if not 0 < number < 1 << 31:
        raise BuildError(Diagnostic("unsafe-text", f"{number} is no number of functions: it has to be 1 or more"))
    return f"{number:d}"


def real(number: float) -> str:
    """A double literal that is exactly ``number``. Raises BuildError for what is not 0 or more, and finite."""
    if not 0 <= number < float("inf"):
        raise BuildError(Diagnostic("unsafe-text", f"{number} is no number of cells: it has to be 0 or more"))
    return repr(float(number))
