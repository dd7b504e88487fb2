// Bitmaps to bytes: the index of a segment as formats.h lays it out, padding included, and the zeros behind
// its values. Every word of the output is written by one thread but in the format of Elias and Fano. The
// count and, under block(k), whole blocks are the caller's care.
#pragma once

#include "zenc_cuda/slots.h"

namespace zenc {

// Writes the positions of a word's bits where their ranks put them.
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

// Elias and Fano, by windows of the bitmap: what a warp lists is consecutive, so its low bits are a range of
// bits, and so are its high bits. Both are put together in shared memory. Words at the ends are shared with
// other windows: the index is cleared before.

// A range of bits from bit `begin` of `out` on, in cleared shared memory of the warp.
struct SharedBits {
    u32* words;
    u32* out;
    u64 begin;

    ZENC_DEVICE void clear(u32 bits) const {
        for (u32 i = lane(); i < all(bits); i += WARP) words[i] = 0;
    }

    // Sets the bits of a value, `bit` bits behind `begin`.
    ZENC_DEVICE void set(u32 bit, u64 value) const {
        const u32 at = static_cast<u32>(begin % 32) + bit, shift = at % 32;
        const u64 lower = value << shift, behind = shift == 0 ? 0 : value >> (64 - shift);
        u32* const to = words + at / 32;
        atomicOr(to, static_cast<u32>(lower));
        if (lower >> 32 != 0) atomicOr(to + 1, static_cast<u32>(lower >> 32));
        if (behind != 0) atomicOr(to + 2, static_cast<u32>(behind));
    }

    ZENC_DEVICE void set(u32 bit) const {
        const u32 at = static_cast<u32>(begin % 32) + bit;
        atomicOr(words + at / 32, 1U << (at % 32));
    }

    ZENC_DEVICE void store(u32 bits) const {
        const u32 end = all(bits);
        for (u32 i = lane(); i < end; i += WARP) {
            u32* const to = out + begin / 32 + i;
            if (i != 0 && i + 1 != end)
                *to = words[i];
            else if (words[i] != 0)
                atomicOr(to, words[i]);
        }
    }

private:
    ZENC_DEVICE u32 all(u32 bits) const { return (static_cast<u32>(begin % 32) + bits + 31) / 32; }
};

constexpr u32 LOW_WORDS = 128, HIGH_WORDS = 2 * 64 + 4;  // of a warp

// Writes the numbers that window `window` lists.
ZENC_DEVICE void encode_window(const Slots& slots, u64 number_of_slots, const EliasFano& shape, u64 window,
                               u32* shared, u32* out) {
    const u64 at = WARP * window + lane(), first = slots.below(WARP * window);
    u64 word = at < slots.words ? slots.word(at) & low_mask(number_of_slots - 64 * at) : 0;
    const u32 mine = static_cast<u32>(population(word)), up_to = inclusive_in_warp(mine);
    const u32 all = __shfl_sync(ALL_LANES, up_to, WARP - 1), low = static_cast<u32>(shape.low);
    const u64 base = 64 * WARP * window - first;  // of the other kind, below the window
    const u64 rest = base & low_mask(low);
    const u32 each = low == 0 ? 64 * WARP : (32 * (LOW_WORDS - 3)) / low;  // numbers whose low bits have room
    const SharedBits high{shared + LOW_WORDS, out + 2 * shape.low_words, (base >> low) + first};
    const u64 left = number_of_slots - 64 * WARP * window, here = left < 64 * WARP ? left : 64 * WARP;
    const u32 high_bits = static_cast<u32>((rest + here - all) >> low) + all;
    u32 number = up_to - mine;
    __syncwarp();
    high.clear(high_bits);
    for (u32 begin = 0; begin < all; begin += each) {
        const u32 end = all - begin < each ? all : begin + each;
        const SharedBits lows{shared, out, (first + begin) * low};
        lows.clear((end - begin) * low);
        __syncwarp();
        for (; word != 0 && number < end; word &= word - 1, ++number) {
            const u64 other = rest + 64 * lane() + lowest_bit(word) - number;
            if (low != 0) lows.set((number - begin) * low, other & low_mask(low));
            high.set(static_cast<u32>(other >> low) + number);
        }
        __syncwarp();
        lows.store((end - begin) * low);
        __syncwarp();
    }
    high.store(all == 0 ? 0 : high_bits);
}

ZENC_DEVICE void clear_bits(const Segment& segment) {
    const u64 words = index_bytes(segment.format, segment.slots, segment.count) / 8;
    for (u64 w = thread_of_row(); w < words; w += threads_of_row())
        reinterpret_cast<u64*>(segment.index)[w] = 0;
}

ZENC_DEVICE void encode_elias_fano(const Segment& segment) {
    ZENC_SHARED(u32, shared, WARPS * (LOW_WORDS + HIGH_WORDS));
    const EliasFano shape(segment.slots, segment.count);
    const Slots slots(segment, shape.absent);
    u32* const mine = shared + threadIdx.x / WARP * (LOW_WORDS + HIGH_WORDS);
    if (shape.listed == 0) return;
    if (gridDim.x == 1) {  // nobody else has cleared it
        clear_bits(segment);
        __syncthreads();
    }
    for (u64 window = warp_of_row(); window * WARP < slots.words; window += warps_of_row())
        encode_window(slots, segment.slots, shape, window, mine, reinterpret_cast<u32*>(segment.index));
}

// Clears the index of segments that are written bit by bit.
ZENC_DEVICE void clear_index(const Segment* segments, u64 n) {
    for_each_segment(n, [&](u64 i) {
        if (segments[i].format == FORMAT_ELIAS_FANO) clear_bits(segments[i]);
    });
}

ZENC_DEVICE void encode_bitmap(const Segment& segment) {
    u64* const out = reinterpret_cast<u64*>(segment.index);
    for (u64 w = thread_of_row(); w < words_of(segment.slots); w += threads_of_row())
        out[w] = segment.bitmap[w];
}

// Whether a block's first slot is occupied, and so all of them.
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

ZENC_DEVICE void encode_index(const Segment* segments, u64 n, u64 row_bytes) {
    for_each_segment(n, [&](u64 i) {
        encode_index(segments[i]);
        clear_behind_values(segments[i], row_bytes);
    });
}

}  // namespace zenc
