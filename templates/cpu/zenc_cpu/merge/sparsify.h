// Leaving out the units of a segment that hold nothing but zeros, of either sign, as a dense phase brings
// them. Any other bits are kept: NaN, infinities and the smallest denormals are something.
#pragma once

#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/nonzero.h"
#include "zenc_cpu/primitives/value_rows.h"

namespace zenc {

// `chosen` counts the set bits of `word` from the lowest one: the result has those of them that it names.
inline u64 deposit(u64 chosen, u64 word) {
    if (word == ~u64{0}) return chosen;
    u64 result = 0;
    for (; word != 0 && chosen != 0; word &= word - 1, chosen >>= 1) {
        if ((chosen & 1) != 0) result |= word & -word;
    }
    return result;
}

// values [count, width] of the slots in `bitmap` -> the bits of those that are not all zero. Returns how
// many.
template <class Bits, class Width>
ZENC_SHARED_CODE inline u64 mark_nonzero(const u64* bitmap, u64 words, Width width, const Bits* values,
                                         u64* kept) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        const u64 n = population(bitmap[w]);
        kept[w] = n == 0 ? 0 : deposit(occupied_word(values, n, width), bitmap[w]);
        total += population(kept[w]);
        values += n * width;
    }
    return total;
}

// values [count, width] of the slots in `bitmap` -> out, the rows of those in `kept`, a part of it.
template <class Bits, class Width>
ZENC_SHARED_CODE inline void copy_kept(const u64* bitmap, const u64* kept, u64 words, Width width,
                                       const Bits* values, Bits* out) {
    for (u64 w = 0; w < words; ++w) {
        const u64 n = population(bitmap[w]);
        if (kept[w] == bitmap[w]) {
            copy_bytes(out, values, n * width * sizeof(Bits));
            out += n * width;
        } else {
            for (u64 word = kept[w]; word != 0; word &= word - 1, out += width) {
                const u64 place = population(bitmap[w] & ((word & -word) - 1));
                copy_bytes(out, values + place * width, width * sizeof(Bits));
            }
        }
        values += n * width;
    }
}

template <class Bits>
inline u64 mark_nonzero_rows(const u64* bitmap, u64 words, u64 width, const Bits* values, u64* kept) {
    return with_width(width, [&](auto w) { return mark_nonzero(bitmap, words, w, values, kept); });
}

template <class Bits>
inline void copy_kept_rows(const u64* bitmap, const u64* kept, u64 words, u64 width, const Bits* values,
                           Bits* out) {
    with_width(width, [&](auto w) { copy_kept(bitmap, kept, words, w, values, out); });
}

}  // namespace zenc
