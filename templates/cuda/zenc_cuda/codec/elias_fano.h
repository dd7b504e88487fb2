// Reading the index elias_fano: see EliasFano in formats.h.
#pragma once

#include "zenc_cuda/primitives/bitmap_tile.h"
#include "zenc_cuda/primitives/check.h"

namespace zenc {

// The numbers that are listed stand in the order of their high bits, which are counted: `ranks` are
// those of the high words, however many bits they have.
struct EliasFanoIndex {
    EliasFano shape;
    const u64* low;
    const u64* high;
    const u64* ranks;

    ZENC_DEVICE explicit EliasFanoIndex(const Segment& segment)
        : shape(segment.slots, segment.count),
          low(reinterpret_cast<const u64*>(segment.index)),
          high(low + shape.low_words),
          ranks(segment.ranks) {}

    ZENC_DEVICE bool absent() const { return shape.absent; }

    ZENC_DEVICE bool has_count() const {
        return shape.high_words == 0 || ones_below(shape.high_words) == shape.listed;
    }

    // The high words with slots from `start` on below `end` are among first(start) .. end(end).
    ZENC_DEVICE u64 first(u64 start) const {
        const u64 most_low = low_mask(shape.low);
        return warp_search(shape.high_words, [&](u64 w) { return least_slot(w + 1) + most_low <= start; });
    }

    ZENC_DEVICE u64 end(u64 end) const {
        return warp_search(shape.high_words, [&](u64 w) { return least_slot(w) < end; });
    }

    ZENC_DEVICE u64 end() const { return shape.high_words; }

    // The threads of a block share the words byte by byte.
    ZENC_DEVICE void mark(u64 first, u64 end, const Tile& tile, Check* check) const {
        for (u64 i = 8 * first + threadIdx.x; i < 8 * end; i += THREADS) {
            const u64 word = high[i / 8];
            const u64 start = i % 8 * 8;
            u64 number = ones_below(i / 8) + population(word & low_mask(start));
            for_each_bit(word >> start & 0xff,
                         [&](u64 bit) { mark_one(i / 8, start + bit, number++, tile, check); });
        }
    }

    ZENC_DEVICE void find_stray_bits(Check* check) const {
        if (shape.listed != 0 && (stray_bits(low, shape.low_bits()) || stray_bits(high, shape.high_bits())))
            blame(check, 0, STRAY_BITS);
    }

private:
    ZENC_DEVICE u64 ones_below(u64 word) const {
        return set_below(high, ranks, word) - below_first(ranks[0]);
    }

    // No slot listed in `word` or behind it is below this; those listed before may be above it by as much as
    // low bits can be.
    ZENC_DEVICE u64 least_slot(u64 word) const {
        const u64 ones = ones_below(word);
        return ((64 * word - ones) << shape.low) + ones;
    }

    ZENC_DEVICE u64 low_of(u64 i) const {
        if (shape.low == 0) return 0;
        const u64 bit = i * shape.low, word = bit / 64, shift = bit % 64;
        u64 bits = low[word] >> shift;
        if (shift + shape.low > 64) bits |= low[word + 1] << (64 - shift);
        return bits & low_mask(shape.low);
    }

    // That of number i, whose high bit is this one of all.
    ZENC_DEVICE u64 slot_of(u64 bit, u64 i) const { return ((bit - i) << shape.low | low_of(i)) + i; }

    ZENC_DEVICE bool follows_another(u64 word, u64 bit) const {
        if (bit != 0) return (high[word] >> (bit - 1) & 1) != 0;
        return word != 0 && high[word - 1] >> 63 != 0;
    }

    // Number i, whose high bit is this one.
    ZENC_DEVICE void mark_one(u64 word, u64 bit, u64 i, const Tile& tile, Check* check) const {
        const u64 lower = low_of(i);
        const u64 number = (64 * word + bit - i) << shape.low | lower;
        if (follows_another(word, bit) && low_of(i - 1) > lower)
            blame(check, 1 + i, NOT_ASCENDING);
        else if (number > shape.others)
            blame(check, 1 + i, OUT_OF_RANGE);
        tile.set(number + i);
    }
};

}  // namespace zenc
