"""Properties of compiled kernels and their sources: parameters, registers, spills, launches.

Usage = name registers spilled stack shared                     # bytes, but for registers
"""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"\.entry\s+(\w+)\s*\((.*?)\)", re.DOTALL)
_PARAMETER = re.compile(
    r"\.param\s+(?:\.align\s+\d+\s+)?\.(\w+)\s+(?:\.ptr\s+(?:\.\w+\s+)*(?:\.align\s+\d+\s+|\d+\s+)?)?(\w+)(\[\d+\])?"
)
_USAGE = re.compile(
    r"Compiling entry function '(\w+)' for .*?"
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads.*?"
    r"Used (\d+) registers(.*?)\n",
    re.DOTALL,
)
_SUFFIXES = {"YES": ["_f32", "_f64", "_f16", "_bf16"], "BY_BITS": ["_16", "_32", "_64"]}
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass(frozen=True)
class Usage:
    name: str
    registers: int
    spilled: int
    stack: int
    shared: int


def entries(ptx: str) -> dict[str, list[str]]:
    """Return each kernel's parameter types, as ``["u64", "u64"]``, with lengths of those that are no words."""
    return {
        name: [kind + (length or "") for kind, _, length in _PARAMETER.findall(parameters)]
        for name, parameters in _ENTRY.findall(ptx)
    }


def usages(log: str) -> list[Usage]:
    """Return what ``--ptxas-options=-v`` prints of each kernel."""
    return [
        Usage(name, int(registers), int(stores) + int(loads), int(stack), sum(map(int, _SHARED.findall(rest))))
        for name, stack, stores, loads, registers, rest in _USAGE.findall(log)
    ]


def declared(source: str) -> dict[str, list[str]]:
    """Return the parameters of each ``ZENC_KERNEL(name, (parameters))`` of a source, as they are written."""
    return dict(_declaration(source, found.end()) for found in re.finditer(r"^ZENC_KERNEL\(", source, re.MULTILINE))


def _declaration(source: str, at: int) -> tuple[str, list[str]]:
    name, parameters = arguments(source, at)[:2]
    return name, split(parameters[1:-1])


def launches(text: str) -> list[tuple[str, list[str]]]:
    """Return KERNEL and its arguments for each launch of host code.

    ``launch(KERNEL, blocks, rows, ...)``, ``launch_of(type, KERNEL, blocks, ...)``, ``launch_for(n, KERNEL, ...)``, and
    ``launch_each(KERNEL, blocks, table, ...)``, which passes the table's length behind it.
    """
    calls = [(found[1] or "", arguments(text, found.end())) for found in re.finditer(r"(?:\.|->)launch(_\w+)?\(", text)]
    at, first = {"": 0, "_of": 1, "_for": 1, "_each": 0}, {"": 3, "_of": 4, "_for": 2, "_each": 2}
    lengths = {"_each": ["length"]}
    return [
        (given[at[how]], [*given[first[how] : first[how] + 1], *lengths.get(how, []), *given[first[how] + 1 :]])
        for how, given in calls
    ]


def kernels_of_host(text: str) -> dict[str, list[str]]:
    """Return the kernel names of each ``static const Kernel NAME("zenc_name")``: one, or one a type or width."""
    found = re.findall(r'static const Kernel (\w+)\("(\w+)"(?:, Typed::(\w+))?(?:, Ending::\w+)?\);', text)
    return {name: [kernel + suffix for suffix in _SUFFIXES.get(typed, [""])] for name, kernel, typed in found}


def arguments(text: str, start: int) -> list[str]:
    """Return the text from the parenthesis that ends at ``start`` to the closing one, cut at its commas."""
    depth, end = 1, start
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return split(text[start : end - 1])


def split(text: str) -> list[str]:
    """Cut ``text`` at the commas outside of brackets."""
    pieces, depth = [""], 0
    for character in text:
        depth += {"(": 1, "[": 1, "{": 1, ")": -1, "]": -1, "}": -1}.get(character, 0)
        if character == "," and depth == 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces] if text.strip() else []
