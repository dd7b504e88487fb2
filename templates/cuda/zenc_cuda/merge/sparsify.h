// Leaving out the units of a segment that hold nothing but zeros, of either sign, as a dense phase brings
// them. Any other bits are kept: NaN, infinities and the smallest denormals are something. `spread` copies
// what is kept.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/primitives/slots.h"

namespace zenc {

// The bits of `word` that `chosen` names, which counts them from the lowest one.
ZENC_DEVICE u64 deposit(u64 chosen, u64 word) {
    if (word == ~0ULL) return chosen;
    u64 result = 0;
    for (; word != 0 && chosen != 0; word &= word - 1, chosen >>= 1)
        if ((chosen & 1) != 0) result |= word & -word;
    return result;
}

// Narrow rows: bit k says whether row k <= 64 is something. Each lane looks at two.
template <class Bits>
ZENC_DEVICE u64 nonzero_narrow(const Bits* rows, u32 n, u32 width) {
    u32 halves[2];
    for (u32 half = 0; half < 2; ++half) {
        const u32 row = half * WARP + lane();
        Bits any = 0;
        for (u32 i = 0; row < n && i < width; ++i) any |= rows[row * width + i];
        halves[half] = __ballot_sync(ALL_LANES, magnitude_bits(any) != 0);
    }
    return static_cast<u64>(halves[1]) << 32 | halves[0];
}

// The same for wide rows: the warp looks at one after another, until it finds something.
template <class Bits>
ZENC_DEVICE u64 nonzero_wide(const Bits* rows, u32 n, u64 width) {
    u64 found = 0;
    for (u32 row = 0; row < n; ++row, rows += width) {
        bool any = false;
        for (u64 first = 0; first < width && !any; first += WARP) {
            const u64 i = first + lane();
            any = __any_sync(ALL_LANES, i < width && magnitude_bits(rows[i]) != 0);
        }
        found |= static_cast<u64>(any) << row;
    }
    return found;
}

// A warp a word. Reads bitmap and ranks of `from`, and its rows as far as they are zero; writes the bitmap of
// `to`, every word.
template <class Bits>
ZENC_DEVICE void mark_nonzero(const Segment& from, const Segment& to, u64 width) {
    const Slots slots(from);
    for (u64 w = warp_of_row(); w < slots.words; w += warps_of_row()) {
        const u64 word = from.bitmap[w];
        const u32 n = static_cast<u32>(population(word));
        const Bits* const rows = static_cast<const Bits*>(from.values) + slots.below(w) * width;
        const u64 found =
            width < WARP ? nonzero_narrow(rows, n, static_cast<u32>(width)) : nonzero_wide(rows, n, width);
        if (lane() == 0) to.bitmap[w] = deposit(found, word);
    }
}

// to[i].bitmap = the slots of from[i] whose rows of `width` values are not all zero.
ZENC_DEVICE void mark_nonzero(const Segment* from, const Segment* to, i64 n, u64 value_bytes, u64 width) {
    for_each_segment(n, [&](u64 i) {
        if (value_bytes == 8)
            mark_nonzero<u64>(from[i], to[i], width);
        else if (value_bytes == 4)
            mark_nonzero<u32>(from[i], to[i], width);
        else
            mark_nonzero<u16>(from[i], to[i], width);
    });
}

}  // namespace zenc
