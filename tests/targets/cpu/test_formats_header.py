"""The header formats.h agrees with ``zenc.wire.formats`` on formats and their bytes."""

from __future__ import annotations

import random
import subprocess

from zenc.codegen.build.toolchain import toolchain
from zenc.codegen.render import include_dirs
from zenc.scheme.model import Format
from zenc.wire.constants import WIRE_FORMATS
from zenc.wire.formats import CPU_COSTS, GPU_COSTS, FormatCosts, index_bytes, wire_layout

PROGRAM = """
#include <cstdio>
#include "zenc/formats.h"
int main() {
    long long format;
    unsigned long long slots, count, c[5];
    while (std::scanf("%lld %llu %llu", &format, &slots, &count) == 3) {
        for (auto& cost : c) std::scanf("%llu", &cost);
        const zenc::FormatCosts costs = {c[0], c[1], c[2], c[3], c[4]};
        const zenc::WireLayout chosen = zenc::wire_layout(format, slots, count, 12, costs);
        const unsigned long long most = zenc::most_index_bytes(format, slots, count, costs);
        std::printf("%lld %llu %llu %llu\\n", chosen.format, chosen.index_bytes, chosen.body_bytes, most);
    }
}
"""
ASKED = (*WIRE_FORMATS, Format.AUTO)


def cases() -> list[tuple[int, int, int, FormatCosts]]:
    """Return format, slots, count and costs: all of small parts, random ones to 2^62 slots, some around powers of two.

    Costs are known of some parts of up to 2^40 slots: the shipped ones, or random ones of any bits.
    """
    draw = random.Random(5)
    pairs = [(slots, count) for slots in range(70) for count in range(slots + 1)]
    for _ in range(3000):
        slots = draw.randrange(1 << draw.randrange(1, 63))
        pairs += [(slots, draw.randint(0, slots)), (slots, slots >> draw.randrange(63))]
    for bits in range(63):
        pairs += [(1 << bits, min(1 << bits, (1 << bits - bits // 2) + near)) for near in (-1, 0, 1)]
    sound = [(f, *pair) for pair in pairs for f in range(len(ASKED)) if pair[1] >> 58 == 0]
    known = [(len(WIRE_FORMATS), slots, count, costs(draw)) for slots, count in pairs * 3 if slots <= 1 << 40]
    return [*((*case, FormatCosts()) for case in sound), *known]


def costs(draw: random.Random) -> FormatCosts:
    """Return shipped costs over some link, or any."""
    byte, *kernels = (draw.randint(0, 1 << draw.randint(0, 20)) for _ in range(5))
    any = FormatCosts(byte or 1, *kernels)
    return draw.choice([any, CPU_COSTS._replace(byte=any.byte), GPU_COSTS._replace(byte=any.byte)])


def test_both_lay_out_the_same(tmp_path):
    source, program = tmp_path / "weigh.cpp", tmp_path / "weigh"
    source.write_text(PROGRAM)
    includes = [f"-I{path}" for path in include_dirs("cpu")]
    subprocess.run([*toolchain().command, "-std=c++17", *includes, str(source), "-o", str(program)], check=True)
    asked = cases()
    text = "".join(f"{format} {slots} {count} {' '.join(map(str, by))}\n" for format, slots, count, by in asked)
    found = subprocess.run([program], input=text, capture_output=True, text=True, check=True).stdout.splitlines()
    for (format, slots, count, by), line in zip(asked, found, strict=True):
        chosen, index, body, most = map(int, line.split())
        assert (WIRE_FORMATS[chosen], index, body) == wire_layout(ASKED[format], slots, count, 12, by)
        assert index == index_bytes(WIRE_FORMATS[chosen], slots, count) <= most
