// Bytes back to bitmaps. Trusts nothing: a bitmap of exactly the promised count comes out, or an empty one
// and the reason, which is that of the CPU.
//
// Reads the index of each segment once, and a little of coo and elias_fano twice: of these every tile of the
// bitmap searches what concerns it. Writes every word of the bitmap once, unless it is the index itself, and
// a status a segment. No word has to be cleared before, and all atomics are in shared memory or on a Check.
#pragma once

#include "zenc_cuda/codec/elias_fano.h"
#include "zenc_cuda/primitives/blocks.h"

namespace zenc {

// Slots in a list.
template <class Index>
struct CooIndex {
    const Index* in;
    u64 slots;
    u64 count;
    bool has_end;  // else there is room behind the entries, in which anything may be

    ZENC_DEVICE explicit CooIndex(const Segment& segment)
        : in(reinterpret_cast<const Index*>(segment.index)),
          slots(segment.slots),
          count(occupied(segment)),
          has_end(segment.actual == nullptr) {}

    ZENC_DEVICE bool absent() const { return false; }

    // Every entry is in one tile, even where entries do not ascend: what a tile ends with the next one begins
    // with.
    ZENC_DEVICE u64 first(u64 start) const {
        return warp_search(count, [&](u64 i) { return in[i] < start; });
    }

    ZENC_DEVICE u64 end(u64 end) const { return first(end); }
    ZENC_DEVICE u64 end() const { return count; }

    ZENC_DEVICE void mark(u64 first, u64 end, const Tile& tile, Check* check) const {
        for (u64 i = first + threadIdx.x; i < end; i += THREADS) {
            const u64 slot = in[i];
            if (i != 0 && slot <= in[i - 1])
                blame(check, 1 + i, NOT_ASCENDING);
            else if (slot >= slots)
                blame(check, 1 + i, OUT_OF_RANGE);
            tile.set(slot);
        }
    }

    ZENC_DEVICE void find_stray_bits(Check* check) const {
        constexpr u64 IN_A_WORD = 8 / sizeof(Index);
        if (has_end && count % IN_A_WORD != 0 && in[count] != 0) blame(check, 1 + count, STRAY_BITS);
    }
};

// Memory of a block: one tile, and the entries that concern it.
struct Shared {
    u32* bits;   // [2 * TILE_WORDS]
    u64* range;  // [2]
};

// Of a sparse format every tile finds the entries that concern it. Returns the slots that this thread wrote.
template <class Entries>
ZENC_DEVICE u64 decode_tiles(const Segment& segment, const Entries& entries, Check* check, Shared shared) {
    u64* const range = shared.range;
    u64 found = 0;
    for (u64 number = blockIdx.x; number * TILE_SLOTS < segment.slots; number += gridDim.x) {
        const Tile tile(shared.bits, number, segment.slots);
        tile.for_each_word([](u64, u32* halves) { halves[0] = halves[1] = 0; });
        const u64 warp = threadIdx.x / WARP;
        if (warp < 2) {
            const bool to_the_end = warp == 1 && tile.is_last(segment.slots);
            const u64 at = to_the_end  ? entries.end()
                           : warp == 1 ? entries.end(tile.end)
                                       : entries.first(tile.start);
            if (lane() == 0) range[warp] = at;
        }
        __syncthreads();
        entries.mark(range[0], range[1], tile, check);
        __syncthreads();
        tile.for_each_word([&](u64 at, const u32* halves) {
            const u64 listed = static_cast<u64>(halves[1]) << 32 | halves[0];
            const u64 word = (entries.absent() ? ~listed : listed) & low_mask(segment.slots - 64 * at);
            segment.bitmap[at] = word;
            found += population(word);
        });
    }
    if (thread_of_row() == 0) entries.find_stray_bits(check);
    return found;
}

// Of all others a word says what it is by itself.
ZENC_DEVICE u64 word_of_index(const Segment& segment, u64 at) {
    const u64* const in = reinterpret_cast<const u64*>(segment.index);
    if (segment.format == FORMAT_DENSE) return ~0ULL;
    return segment.format == FORMAT_BITMAP ? in[at] : word_of_blocks(in, block_shift(segment.format), at);
}

// The bits that the index has for slots or blocks.
ZENC_DEVICE u64 bits_of_index(const Segment& segment) {
    if (segment.format == FORMAT_DENSE || segment.slots == 0) return 0;
    return segment.format == FORMAT_BITMAP ? segment.slots
                                           : ((segment.slots - 1) >> block_shift(segment.format)) + 1;
}

ZENC_DEVICE u64 decode_words(const Segment& segment, Check* check) {
    u64 found = 0;
    const bool in_place = segment.bitmap == reinterpret_cast<const u64*>(segment.index);
    for (u64 w = thread_of_row(); w < words_of(segment.slots); w += threads_of_row()) {
        const u64 word = word_of_index(segment, w) & low_mask(segment.slots - 64 * w);
        if (!in_place) segment.bitmap[w] = word;
        found += population(word);
    }
    if (thread_of_row() == 0 &&
        stray_bits(reinterpret_cast<const u64*>(segment.index), bits_of_index(segment)))
        blame(check, 0, STRAY_BITS);
    return found;
}

// Whether what came can be a segment: it has no more slots than there are, or room for them.
ZENC_DEVICE bool can_be(const Segment& segment) {
    return segment.count <= segment.slots && (segment.actual == nullptr || *segment.actual <= segment.count);
}

// Returns the slots that this thread wrote.
ZENC_DEVICE u64 decode_index(const Segment& segment, Check* check, Shared shared) {
    const bool first = thread_of_row() == 0;
    if (!can_be(segment)) {
        if (first) blame(check, 0, WRONG_COUNT);
        return 0;
    }
    if (segment.format < 0 || segment.format > LAST_FORMAT) {
        if (first) blame(check, 0, UNKNOWN_FORMAT);
        return 0;
    }
    if (segment.format == FORMAT_ELIAS_FANO) {
        const EliasFanoIndex index(segment);
        if (index.has_count()) return decode_tiles(segment, index, check, shared);
        if (first) blame(check, 0, WRONG_COUNT);
        return 0;
    }
    if (segment.format != FORMAT_COO) return decode_words(segment, check);
    if (coo_index_bytes(segment.slots) == 4)
        return decode_tiles(segment, CooIndex<u32>(segment), check, shared);
    return decode_tiles(segment, CooIndex<u64>(segment), check, shared);
}

// `checks` [n] are cleared. For elias_fano `ranks` are those of the index' high words, which are fewer than
// those of the bitmap.
ZENC_DEVICE void decode_indices(const Segment* segments, i64 n, Check* checks, i64* status) {
    ZENC_SHARED(u32, bits, 2 * TILE_WORDS);
    ZENC_SHARED(u64, range, 2);
    for_each_segment(n, [&](u64 i) {
        const Segment segment = segments[i];
        const u64 found = decode_index(segment, checks + i, {bits, range});
        settle(segment, found, checks + i, status + i);
    });
}

}  // namespace zenc
