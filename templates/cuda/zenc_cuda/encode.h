// Bitmaps to bytes: the index of a segment as formats.h lays it out, padding included, and the zeros behind
// its values. Every word of the output is written by one thread, so nothing has to be cleared, and there are
// no atomics. The count and, under block(k), whole blocks are the caller's care.
#pragma once

#include "zenc_cuda/slots.h"

namespace zenc {

// The positions of a word's bits, from where their ranks put them.
ZENC_DEVICE void encode_coo(const Segment& segment) {
    u32* const halves = reinterpret_cast<u32*>(segment.index);
    u64* const whole = reinterpret_cast<u64*>(segment.index);
    const bool in_halves = coo_index_bytes(segment.slots) == 4;
    const Slots slots(segment);
    for (u64 w = thread_of_row(); w < slots.words; w += threads_of_row()) {
        u64 i = slots.below(w);
        for_each_bit(slots.bitmap[w], [&](u64 bit) {
            if (in_halves)
                halves[i++] = static_cast<u32>(64 * w + bit);
            else
                whole[i++] = 64 * w + bit;
        });
    }
    if (in_halves && thread_of_row() == 0 && segment.count % 2 != 0) halves[segment.count] = 0;
}

// The low bits of one number after another, from the one that holds the first bit of a word: word `at`.
ZENC_DEVICE u64 low_word(const Slots& slots, const EliasFano& shape, u64 from, u64 at) {
    const u64 bits = shape.low;
    u64 word = 0;
    SlotCursor cursor(slots, from, 64 * at / bits);
    for (; cursor.number() < shape.listed && cursor.number() * bits < 64 * (at + 1); cursor.next()) {
        const u64 low = (cursor.slot() - cursor.number()) & low_mask(bits);
        const u64 bit = cursor.number() * bits;
        word |= bit >= 64 * at ? low << (bit - 64 * at) : low >> (64 * at - bit);
    }
    return word;
}

ZENC_DEVICE void encode_low(const Slots& slots, const EliasFano& shape, u64* out) {
    for (u64 first = warp_of_row() * WARP; first < shape.low_words; first += threads_of_row()) {
        const u64 from = slots.word_of_warp(64 * first / shape.low);
        if (const u64 at = first + lane(); at < shape.low_words) out[at] = low_word(slots, shape, from, at);
    }
}

// The high bit of the first slot listed of `word` or behind it is not below this, and that of every slot
// listed before `word` is.
ZENC_DEVICE u64 least_high(const Slots& slots, const EliasFano& shape, u64 word) {
    const u64 listed = slots.below(word);
    return ((64 * word - listed) >> shape.low) + listed;
}

ZENC_DEVICE u64 high_word(const Slots& slots, const EliasFano& shape, u64 from, u64 at) {
    from = gallop(from, slots.words, [&](u64 w) { return least_high(slots, shape, w) <= 64 * at; });
    u64 word = 0;
    if (slots.below(from) >= shape.listed) return word;
    for (SlotCursor cursor(slots, from, slots.below(from)); cursor.number() < shape.listed; cursor.next()) {
        const u64 bit = ((cursor.slot() - cursor.number()) >> shape.low) + cursor.number();
        if (bit >= 64 * (at + 1)) break;
        if (bit >= 64 * at) word |= 1ULL << (bit % 64);
    }
    return word;
}

ZENC_DEVICE void encode_high(const Slots& slots, const EliasFano& shape, u64* out) {
    for (u64 first = warp_of_row() * WARP; first < shape.high_words; first += threads_of_row()) {
        const auto low_enough = [&](u64 w) { return least_high(slots, shape, w) <= 64 * first; };
        const u64 from = warp_search(slots.words, low_enough) - 1;
        if (const u64 at = first + lane(); at < shape.high_words) out[at] = high_word(slots, shape, from, at);
    }
}

ZENC_DEVICE void encode_elias_fano(const Segment& segment) {
    const EliasFano shape(segment.slots, segment.count);
    const Slots slots(segment, shape.absent);
    u64* const out = reinterpret_cast<u64*>(segment.index);
    encode_low(slots, shape, out);
    encode_high(slots, shape, out + shape.low_words);
}

ZENC_DEVICE void encode_bitmap(const Segment& segment) {
    u64* const out = reinterpret_cast<u64*>(segment.index);
    for (u64 w = thread_of_row(); w < words_of(segment.slots); w += threads_of_row())
        out[w] = segment.bitmap[w];
}

// Whether the first slot of a block is there, and so all of them are.
ZENC_DEVICE bool has_block(const Segment& segment, u64 block, u64 shift) {
    const u64 slot = block << shift;
    return slot < segment.slots && (segment.bitmap[slot / 64] >> (slot % 64) & 1) != 0;
}

ZENC_DEVICE void encode_blocks(const Segment& segment) {
    const u64 shift = block_shift(segment.format);
    const u64 words = index_bytes(segment.format, segment.slots, segment.count) / 8;
    u64* const out = reinterpret_cast<u64*>(segment.index);
    for (u64 w = warp_of_row(); w < words; w += warps_of_row()) {
        const u64 block = 64 * w + lane();
        const u32 low = __ballot_sync(ALL_LANES, has_block(segment, block, shift));
        const u32 high = __ballot_sync(ALL_LANES, has_block(segment, block + WARP, shift));
        if (lane() == 0) out[w] = static_cast<u64>(high) << WARP | low;
    }
}

ZENC_DEVICE void encode_index(const Segment& segment) {
    if (segment.format == FORMAT_COO)
        encode_coo(segment);
    else if (segment.format == FORMAT_BITMAP)
        encode_bitmap(segment);
    else if (segment.format == FORMAT_ELIAS_FANO)
        encode_elias_fano(segment);
    else if (segment.format >= FORMAT_BLOCK)
        encode_blocks(segment);
}

// Rows of 2-byte values may end inside a word.
ZENC_DEVICE void clear_behind_values(const Segment& segment, u64 row_bytes) {
    const u64 bytes = segment.count * row_bytes;
    if (segment.values != nullptr && thread_of_row() < padded(bytes) - bytes)
        static_cast<u8*>(segment.values)[bytes + thread_of_row()] = 0;
}

ZENC_DEVICE void encode_index(const Segment* segments, i64 n, u64 row_bytes) {
    for_each_segment(n, [&](u64 i) {
        encode_index(segments[i]);
        clear_behind_values(segments[i], row_bytes);
    });
}

}  // namespace zenc
