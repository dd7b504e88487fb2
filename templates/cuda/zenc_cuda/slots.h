// Slots of segments: the occupied ones, or the absent ones, by their numbers; whole blocks of them; and, in
// capacity mode, whether there is room for them.
#pragma once

#include "zenc_cuda/scan.h"

namespace zenc {

// The number of occupied slots; never more than there is room for, whatever a peer says.
ZENC_DEVICE u64 occupied(const Segment& segment) {
    if (segment.actual == nullptr || *segment.actual > segment.count) return segment.count;
    return *segment.actual;
}

// The occupied slots of a segment; or, if `absent`, all the others.
struct Slots {
    const u64* bitmap;
    const u64* ranks;
    u64 words;
    bool absent;

    ZENC_DEVICE explicit Slots(const Segment& segment, bool absent_ = false)
        : bitmap(segment.bitmap), ranks(segment.ranks), words(words_of(segment.slots)), absent(absent_) {}

    // The number of occupied slots in the words below `word`, for word <= words.
    ZENC_DEVICE u64 below(u64 word) const {
        const u64 occupied = set_below(bitmap, ranks, word) - below_first(ranks[0]);
        return absent ? 64 * word - occupied : occupied;
    }

    // Bits beyond the last slot look like absent ones, behind all others.
    ZENC_DEVICE u64 word(u64 at) const { return absent ? ~bitmap[at] : bitmap[at]; }

    // The word that number i is in, for which `from` is a word that is not behind it.
    ZENC_DEVICE u64 word_of(u64 i, u64 from) const {
        return gallop(from, words, [&](u64 at) { return below(at) <= i; });
    }

    // word_of for a warp whose lanes ask together, and know nothing yet.
    ZENC_DEVICE u64 word_of_warp(u64 i) const {
        return warp_search(words, [&](u64 at) { return below(at) <= i; }) - 1;
    }
};

// Words of a bitmap in which whole blocks are occupied; a block is 2^shift slots, as block(k) has them.

// Word `at` of the bitmap that has all slots of the blocks in `blocks`, for shift >= 1.
ZENC_DEVICE u64 word_of_blocks(const u64* blocks, u64 shift, u64 at) {
    if (shift >= 6) {
        const u64 block = at >> (shift - 6);
        return (blocks[block / 64] >> (block % 64) & 1) != 0 ? ~0ULL : 0;
    }
    const u64 in_a_word = 64ULL >> shift;
    const u64 first = at * in_a_word;
    u64 word = 0;
    for_each_bit(blocks[first / 64] >> (first % 64) & low_mask(in_a_word),
                 [&](u64 block) { word |= low_mask(1ULL << shift) << (block << shift); });
    return word;
}

// Word `at` of a segment's bitmap with every block filled up that has any slot.
ZENC_DEVICE u64 word_with_full_blocks(const Segment& segment, u64 shift, u64 at) {
    if (shift < 6) {
        const u64 each = low_mask(1ULL << shift);
        u64 word = segment.bitmap[at];
        for (u64 by = 1; by >> shift == 0; by *= 2) word |= word >> by;  // the lowest bit of a block has all
        return (word & ~0ULL / each) * each;
    }
    const u64 words = words_of(segment.slots), in_a_block = 1ULL << (shift - 6);
    const u64 first = at / in_a_block * in_a_block;
    const u64 end = words - first < in_a_block ? words : first + in_a_block;
    const Slots slots(segment);
    return slots.below(end) != slots.below(first) ? ~0ULL : 0;
}

// to[i].bitmap = all slots that to[i].format fills up of from[i]: every one under dense, and those of the
// blocks that have any under block(k).
ZENC_DEVICE void fill(const Segment* to, u64 n, const Segment* from) {
    for_each_segment(n, [&](u64 i) {
        const Segment target = to[i];
        for (u64 w = thread_of_row(); w < words_of(target.slots); w += threads_of_row()) {
            const u64 word = target.format == FORMAT_DENSE
                                 ? ~0ULL
                                 : word_with_full_blocks(from[i], block_shift(target.format), w);
            target.bitmap[w] = word & low_mask(target.slots - 64 * w);
        }
    });
}

// Empties a segment, by one block.
ZENC_DEVICE void empty(const Segment& segment) {
    const u64 words = words_of(segment.slots), ranks = ranks_of(segment.slots);
#pragma unroll 1
    for (u64 i = threadIdx.x; i < words; i += THREADS) segment.bitmap[i] = 0;
#pragma unroll 1
    for (u64 i = threadIdx.x; i < ranks; i += THREADS) segment.ranks[i] = 0;
}

// Segments of which only the room is known to the host: whether they have it, and how many slots they are.
// `raised` is 0 until anything does not fit: then the call is made again, and what it does until then must
// only stay inside of its memory.

// Raises unless all segments, which are marked and ranked, have room, and words are what they should be. Then
// writes how many slots segments have; once `raised` they have none, as if they had never been marked. By one
// block, since nothing else is to be done.
ZENC_DEVICE void admit(const Segment* segments, u64 n, const Expected* words, u64 m, u64* raised) {
    bool wrong = false;
#pragma unroll 1
    for (u64 i = threadIdx.x; i < m; i += THREADS) wrong |= *words[i].word != words[i].right;
#pragma unroll 1
    for (u64 i = threadIdx.x; i < n; i += THREADS) {
        const Segment& segment = segments[i];
        const u64 found = set_between(segment.ranks[0], segment.ranks[ranks_of(segment.slots) - 1]);
        *segment.actual = found;
        wrong |= found > segment.count;
    }
    if (wrong) atomicOr(raised, 1ULL);
    __syncthreads();
    if (load_relaxed(raised) == 0) return;
#pragma unroll 1
    for (u64 i = 0; i < n; ++i) {
        if (threadIdx.x == 0) *segments[i].actual = 0;
        empty(segments[i]);
        __syncthreads();  // the last rank of a part may be the first of the next one
    }
}

// Gather: words from anywhere in the device's memory, copied to one buffer that is sent or read as a whole;
// or to memory of the host, which then hears a bell.

// A word a thread, by one block. The last row may be a bell.
ZENC_DEVICE void gather(const Gathered* rows, u64 n) {
#pragma unroll 1
    for (u64 i = threadIdx.x; i < n; i += THREADS) {
        const Gathered row = rows[i];
        if (row.from == row.to) continue;
        *row.to = row.from == nullptr    ? reinterpret_cast<u64>(row.first)
                  : row.first == nullptr ? *row.from
                                         : set_between(*row.first, *row.from);
    }
    if (n == 0 || rows[n - 1].from != rows[n - 1].to) return;
    __threadfence_system();
    __syncthreads();
    if (threadIdx.x == 0) ring(rows[n - 1].to, RUNG);
}

// The epilogue of a kernel: all threads call it in the end.
template <Ending FIRST>
ZENC_DEVICE void run_epilogue(const Tables& tables) {
    if (tables.words[0] == 0) return;
    const Epilogue end = *tables(reinterpret_cast<const Epilogue*>(tables.words[0]));
    if (!is_last_block(end.arrived, static_cast<u64>(gridDim.x) * gridDim.y)) return;
#pragma unroll 1
    for (i64 i = 0; FIRST <= Ending::RANK && i < end.number_ranked; ++i) rank_by_block(tables(end.ranked)[i]);
    if (FIRST <= Ending::ADMIT && end.raised != nullptr)
        admit(tables(end.admitted), end.number_admitted, tables(end.words), end.number_of_words, end.raised);
    __syncthreads();
    gather(tables(end.rows), end.number_of_rows);
}

}  // namespace zenc
