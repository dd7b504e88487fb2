"""Sources from a plan: the templates of a target, filled with the few facts that are not known to its headers.

Templates are thin: the mapping with its seed, names, instantiations, entry points. The algorithms are static headers.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cache
from typing import TYPE_CHECKING, Literal

from zenc.codegen.templates import TEMPLATE_SUFFIX, template_names, templates_dir
from zenc.errors import BuildError, Diagnostic
from zenc.plan.model import Plan
from zenc.scheme.model import Permutation

if TYPE_CHECKING:
    from jinja2 import Environment

MappingKind = Literal["contiguous", "permutation"]


@dataclass(frozen=True, slots=True)
class UnitInputs:
    """What ``kernels.*.j2`` is filled with. ``digest`` is hexadecimal; ``seed`` has 64 bits, 0 where none is used."""

    scheme: str
    digest: str
    mapping: MappingKind
    seed: int = 0

    @classmethod
    def of(cls, plan: Plan) -> UnitInputs:
        """The inputs for ``plan``."""
        if isinstance(plan.mapping, Permutation):
            return cls(plan.scheme, plan.digest, "permutation", plan.mapping.seed)
        return cls(plan.scheme, plan.digest, "contiguous")


def render(inputs: UnitInputs, target: str = "cpu") -> dict[str, str]:
    """The sources of one compiled unit: file name -> text, one for each template of ``target``.

    Raises BuildError (``unknown-target``, ``unsafe-text``).
    """
    names = template_names(target)
    if not names:
        raise BuildError(Diagnostic("unknown-target", f"there are no templates for the target {target!r}"))
    values = asdict(inputs)
    return {_file_name(name): environment().get_template(name).render(values) for name in names}


def _file_name(template: str) -> str:
    return template.rpartition("/")[2].removesuffix(TEMPLATE_SUFFIX)


@cache
def environment() -> Environment:
    """The one jinja2 environment. Late import: only a build needs it."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(templates_dir()),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # the output is C++; every text of a user passes one of the filters below
    )
    made.filters.update(comment=comment, literal=literal, hexadecimal=hexadecimal, word=word)
    return made


def comment(text: str) -> str:
    """``text`` for the inside of a line comment. Raises BuildError where it could end or continue the line."""
    if not text.isprintable() or "\\" in text or "??" in text:
        raise _unsafe(text, "a comment takes printable text without backslashes")
    return text


def literal(text: str) -> str:
    """``text`` as a C++ string literal: UTF-8, everything but plain ASCII in octal."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return '"' + "".join(plain) + '"'


def hexadecimal(text: str) -> str:
    """``text`` itself, if it is made of hexadecimal digits. Raises BuildError otherwise."""
    if not text or set(text) - set("0123456789abcdefABCDEF"):
        raise _unsafe(text, "a digest is made of hexadecimal digits")
    return text


def word(number: int) -> str:
    """An unsigned 64-bit literal. Raises BuildError for numbers that do not fit."""
    if not 0 <= number < 1 << 64:
        raise _unsafe(str(number), "a seed is an integer of 64 bits, 0 or more")
    return f"{number:#x}ULL"


def _unsafe(text: str, why: str) -> BuildError:
    return BuildError(Diagnostic("unsafe-text", f"{text[:80]!r} can't be written into generated code", notes=(why,)))
