// Words of a bitmap in which whole blocks are occupied; a block is 2^shift slots, as block(k) has them.
#pragma once

#include "zenc/segment.h"
#include "zenc_cuda/primitives/slots.h"

namespace zenc {

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
// blocks that have any under block(k). Reads bitmap or ranks of `from`; writes the bitmap of `to`, every
// word.
ZENC_DEVICE void fill(const Segment* from, const Segment* to, i64 n) {
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

}  // namespace zenc
