// Segments of all slots that still say which units some rank has: of others all values are -0. A sum is -0
// only where all of its terms are.
#pragma once

#include "zenc_cuda/rows.h"

namespace zenc {

template <class Bits>
constexpr Bits NEGATIVE_ZERO = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));

// What the values of absent units are: zeros of either sign, or where they are `marked` -0.
template <class Bits>
struct Absent {
    Bits value, counting;

    ZENC_DEVICE explicit Absent(bool marked)
        : value(marked ? NEGATIVE_ZERO<Bits> : Bits{0}),
          counting(static_cast<Bits>(marked ? ~Bits{0} : ~NEGATIVE_ZERO<Bits>)) {}

    // The bits in which a value is another.
    ZENC_DEVICE Bits differs(Bits bits) const { return static_cast<Bits>((bits ^ value) & counting); }
};

template <class Bits>
ZENC_DEVICE void mark_absent(const Segment& from, const Segment& to, u64 width) {
    RowBatches batch(to, width * sizeof(Bits));
    while (batch.next()) {
        const bool has = batch.has_row() && (from.bitmap[batch.word] >> batch.bit & 1) != 0;
        const u32 there = __ballot_sync(ALL_LANES, has);
        Bits* const values = static_cast<Bits*>(to.values) + batch.first * width;
        for (u64 i = lane(); i < batch.rows * width; i += WARP)
            if (magnitude_bits(values[i]) == 0)
                values[i] = (there >> (i / width) & 1) != 0 ? Bits{0} : NEGATIVE_ZERO<Bits>;
    }
}

// Zeros of to[i] [count, width], which has all slots of from[i] and others: +0 in those, and -0 in others.
ZENC_DEVICE void mark_absent(const Segment* from, const Segment* to, i64 n, u64 value_bytes, u64 width) {
    for_each_segment(n, [&](u64 i) {
        if (value_bytes == 8)
            mark_absent<u64>(from[i], to[i], width);
        else if (value_bytes == 4)
            mark_absent<u32>(from[i], to[i], width);
        else
            mark_absent<u16>(from[i], to[i], width);
    });
}

}  // namespace zenc
