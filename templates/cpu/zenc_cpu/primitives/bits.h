// Bitmaps of a whole segment or more.
#pragma once

#include "zenc/bits.h"
#include "zenc_cpu/primitives/lanes.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Writes base + bit for every set bit of a word, ascending. Returns how many. `out` has room for 64, since
// the first BLIND are written whether they are there or not: in sparse bitmaps a loop that ends after one or
// two bits is mispredicted for most words.
template <u64 BLIND, class Index>
inline u64 append_bits(u64 word, u64 base, Index* out) {
    const u64 count = population(word);
#if ZENC_LANES
    append_lanes(word, count, base, out);
#else
    for (u64 i = 0; i < BLIND; ++i, word &= word - 1)
        out[i] = static_cast<Index>(base + lowest_bit(word | 1ULL << 63));
    if (count <= BLIND) return count;
    out += BLIND;
    for_each_bit(word, [&](u64 bit) { *out++ = static_cast<Index>(base + bit); });
#endif
    return count;
}

// before[w] = bits set in the words below w. Returns the bits of all words.
inline u64 rank(const u64* bitmap, u64 words, u64* before) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        before[w] = total;
        total += population(bitmap[w]);
    }
    return total;
}

inline u64 population(const u64* bitmap, u64 words) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) total += population(bitmap[w]);
    return total;
}

// Sets the bits [0, slots) and clears the rest of the last word.
inline void fill_bitmap(u64* bitmap, u64 slots) {
    for (u64 w = 0; w < slots / 64; ++w) bitmap[w] = ~0ULL;
    if (slots % 64 != 0) bitmap[slots / 64] = low_mask(slots % 64);
}

// out = the union of m bitmaps. Returns its bits.
inline u64 unite(u64 m, const u64* const* bitmaps, u64 words, u64* out) {
    constexpr u64 BLOCK = 512;  // 4 KiB of `out` stay in the first cache while m bitmaps stream past
    u64 total = 0;
    for (u64 first = 0; first < words; first += BLOCK) {
        const u64 n = words - first < BLOCK ? words - first : BLOCK;
        u64* const block = out + first;
        clear_bytes(block, n * 8);
        for (u64 k = 0; k < m; ++k) {
            const u64* const other = bitmaps[k] + first;
            for (u64 w = 0; w < n; ++w) block[w] |= other[w];
        }
        total += population(block, n);
    }
    return total;
}

}  // namespace zenc
