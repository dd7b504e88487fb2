// A piece of a bitmap, which one block of threads puts together in shared memory.
#pragma once

#include "zenc/launch.h"
#include "zenc_cuda/primitives/search.h"

namespace zenc {

constexpr u64 TILE_SLOTS = 64 * TILE_WORDS;

struct Tile {
    u32* bits;  // [2 * TILE_WORDS], shared
    u64 start;
    u64 end;

    ZENC_DEVICE Tile(u32* bits_, u64 number, u64 slots)
        : bits(bits_),
          start(number * TILE_SLOTS),
          end(slots - start < TILE_SLOTS ? slots : start + TILE_SLOTS) {}

    ZENC_DEVICE bool is_last(u64 slots) const { return end == slots; }

    // Slots of other tiles are left to them.
    ZENC_DEVICE void set(u64 slot) const {
        if (slot < start || slot >= end) return;
        atomicOr(bits + (slot - start) / 32, 1U << (slot % 32));
    }

    // visit(word of the bitmap, its two halves), for the words of this thread: the same ones every time.
    template <class Visit>
    ZENC_DEVICE void for_each_word(Visit visit) const {
        for (u64 w = threadIdx.x; start + 64 * w < end; w += THREADS) visit(start / 64 + w, bits + 2 * w);
    }
};

// Whether bits are set beyond the first `bits` of words_of(bits) words.
ZENC_DEVICE bool stray_bits(const u64* words, u64 bits) {
    return bits % 64 != 0 && (words[bits / 64] & ~low_mask(bits % 64)) != 0;
}

}  // namespace zenc
