// Bytes back to bitmaps and ranks. Trusts nothing: a bitmap of exactly the promised count comes out, or an
// empty one and the reason, which is that of the CPU.
//
// Of coo every tile of the bitmap searches what concerns it. Of elias_fano each word of high bits sets the
// bits that it lists; a bitmap that came, or was made so, is counted and ranked where it lies.
#pragma once

#include "zenc_cuda/slots.h"

namespace zenc {

// Keeps the fault at the lowest position, and among several there the one whose status is nearest to 0.
ZENC_DEVICE void blame(Check* check, u64 position, i64 status) {
    atomicMax(&check->fault, ~(8 * position + static_cast<u64>(-status)));
}

// Every block says how many slots each of its threads found. The last one to come writes the status, and
// empties a segment that is not what it promised: nothing behind it is led astray.
ZENC_DEVICE void settle(const Segment& segment, u64 found, Check* check, i64* status) {
    found = sum_of_warp(found);
    if (lane() == 0) atomicAdd(&check->count, found);
    if (!is_last_block(&check->arrived, gridDim.x)) return;
    const u64 fault = load_relaxed(&check->fault);
    const i64 verdict = fault != 0                                         ? -static_cast<i64>(~fault % 8)
                        : load_relaxed(&check->count) == occupied(segment) ? 0
                                                                           : WRONG_COUNT;
    if (threadIdx.x == 0) *status = verdict;
    if (verdict >= 0) return;
    empty(segment);
}

// Whether bits are set beyond the first `bits` of words_of(bits) words.
ZENC_DEVICE bool stray_bits(const u64* words, u64 bits) {
    return bits % 64 != 0 && (words[bits / 64] & ~low_mask(bits % 64)) != 0;
}

// A piece of a bitmap that is built from a list, a word a thread.
struct Tile {
    static constexpr u64 SLOTS = 64 * THREADS;

    u32* bits;   // [2 * THREADS], shared
    u64* range;  // [2], shared: the entries that concern it
    u64 start;
    u64 end;

    // Slots of other tiles are left to them.
    ZENC_DEVICE void set(u64 slot) const {
        if (slot >= start && slot < end) atomicOr(bits + (slot - start) / 32, 1U << (slot % 32));
    }
};

// Slots in a list of the format coo.
struct CooIndex {
    const u8* in;
    bool in_halves;
    u64 slots;
    u64 count;

    ZENC_DEVICE explicit CooIndex(const Segment& segment)
        : in(segment.index),
          in_halves(coo_index_bytes(segment.slots) == 4),
          slots(segment.slots),
          count(occupied(segment)) {}

    ZENC_DEVICE u64 at(u64 i) const {
        return in_halves ? reinterpret_cast<const u32*>(in)[i] : reinterpret_cast<const u64*>(in)[i];
    }

    // This thread's word of a tile. Every entry belongs to one tile, even where entries do not ascend: a tile
    // begins with the entry that the one before ended with, and the last tile has all that are left.
    ZENC_DEVICE u64 word(const Tile& tile, Check* check) const {
        u32* const halves = tile.bits + 2 * threadIdx.x;
        halves[0] = halves[1] = 0;
        if (const u64 warp = threadIdx.x / WARP; warp < 2) {
            const u64 border = warp == 0 ? tile.start : tile.end;
            const u64 below = warp_search(count, [&](u64 i) { return at(i) < border; });
            if (lane() == 0) tile.range[warp] = warp == 1 && border == slots ? count : below;
        }
        __syncthreads();
        for (u64 i = tile.range[0] + threadIdx.x; i < tile.range[1]; i += THREADS) {
            const u64 slot = at(i);
            if (i != 0 && slot <= at(i - 1))
                blame(check, 1 + i, NOT_ASCENDING);
            else if (slot >= slots)
                blame(check, 1 + i, OUT_OF_RANGE);
            tile.set(slot);
        }
        __syncthreads();
        return static_cast<u64>(halves[1]) << 32 | halves[0];
    }
};

// The numbers that elias_fano lists (EliasFano in formats.h) stand in the order of their high bits, which are
// counted: `high` are the high words with their ranks, however many bits they have.
struct EliasFanoIndex {
    EliasFano shape;
    const u64* low;
    Slots high;

    ZENC_DEVICE EliasFanoIndex(const Segment& segment, const Segment& high_)
        : shape(segment.slots, segment.count),
          low(reinterpret_cast<const u64*>(segment.index)),
          high(high_) {}

    ZENC_DEVICE bool has_count() const {
        return shape.high_words == 0 || high.below(shape.high_words) == shape.listed;
    }

    // Sets the bits of slots listed in word `at` of the high words; clears them where absent ones are listed.
    ZENC_DEVICE void mark(u64 at, u64 slots, u64* bitmap, Check* check) const {
        u64 number = high.below(at), word = 0, bits = 0, last = 0;
        u64 next = at != 0 && high.word(at - 1) >> 63 != 0 ? 64 * at : ~0ULL;  // the one behind the last one
        if (next != ~0ULL && number != 0) last = low_of(number - 1);
        for_each_bit(high.word(at), [&](u64 bit) {
            const u64 lower = low_of(number), place = 64 * at + bit;
            const u64 other = (place - number) << shape.low | lower, slot = other + number;
            const bool descends = place == next && last > lower;
            if (descends || other > shape.others)
                blame(check, 1 + number, descends ? NOT_ASCENDING : OUT_OF_RANGE);
            if (slot / 64 != word) {
                change(bitmap, word, bits);
                bits = 0;
                word = slot / 64;
            }
            if (slot < slots) bits |= 1ULL << (slot % 64);
            last = lower;
            next = place + 1;
            ++number;
        });
        change(bitmap, word, bits);
    }

private:
    ZENC_DEVICE void change(u64* bitmap, u64 word, u64 bits) const {
        if (bits == 0) return;
        if (shape.absent)
            keep_bits(bitmap + word, ~bits);
        else
            set_bits(bitmap + word, bits);
    }

    ZENC_DEVICE u64 low_of(u64 i) const {
        if (shape.low == 0) return 0;
        const u64 bit = i * shape.low, word = bit / 64, shift = bit % 64;
        u64 bits = low[word] >> shift;
        if (shift + shape.low > 64) bits |= low[word + 1] << (64 - shift);
        return bits & low_mask(shape.low);
    }
};

// This thread's word of a tile that has any slots.
ZENC_DEVICE u64 decoded_word(const Segment& segment, const Tile& tile, Check* check) {
    const u64* const in = reinterpret_cast<const u64*>(segment.index);
    const u64 at = tile.start / 64 + threadIdx.x;
    if (segment.format == FORMAT_COO) return CooIndex(segment).word(tile, check);
    if (segment.format == FORMAT_DENSE) return ~0ULL;
    if (at >= words_of(segment.slots)) return 0;
    return segment.format == FORMAT_BITMAP ? in[at] : word_of_blocks(in, block_shift(segment.format), at);
}

ZENC_DEVICE bool has_wrong_count(const Segment& segment) {
    return segment.count > segment.slots || (segment.actual != nullptr && *segment.actual > segment.count);
}

// Returns the fault of a segment that can be seen without its bits, or 0.
ZENC_DEVICE i64 wrong_at_once(const Segment& segment) {
    if (has_wrong_count(segment)) return WRONG_COUNT;
    return segment.format < 0 || segment.format > LAST_FORMAT ? UNKNOWN_FORMAT : 0;
}

// Finds bits that are set behind the index, in its last word.
ZENC_DEVICE void find_stray_bits(const Segment& segment, Check* check) {
    const u64* const in = reinterpret_cast<const u64*>(segment.index);
    const u64 slots = segment.slots, count = segment.count;
    if (segment.format == FORMAT_ELIAS_FANO) {
        const EliasFano shape(slots, count);
        if (shape.listed != 0 &&
            (stray_bits(in, shape.low_bits()) || stray_bits(in + shape.low_words, shape.high_bits())))
            blame(check, 0, STRAY_BITS);
    } else if (segment.format == FORMAT_COO) {  // in room of which the end is not known anything may be
        if (segment.actual == nullptr && stray_bits(in, 8 * coo_index_bytes(slots) * count))
            blame(check, 1 + count, STRAY_BITS);
    } else if (segment.format != FORMAT_DENSE && slots != 0) {
        const u64 shift = segment.format == FORMAT_BITMAP ? 0 : block_shift(segment.format);
        if (stray_bits(in, ((slots - 1) >> shift) + 1)) blame(check, 0, STRAY_BITS);
    }
}

// Elias and Fano: first the ranks of the high words, and a bitmap of nothing, or of everything where absent
// slots are listed; then a thread a word of high bits. Of a wrong count nothing.

ZENC_DEVICE bool is_listed(const Segment& segment) {
    return segment.format == FORMAT_ELIAS_FANO && !has_wrong_count(segment);
}

ZENC_DEVICE void begin_bitmap(const Segment& segment) {
    const bool absent = EliasFano(segment.slots, segment.count).absent;
    for (u64 w = thread_of_row(); w < words_of(segment.slots); w += threads_of_row())
        segment.bitmap[w] = absent ? low_mask(segment.slots - 64 * w) : 0;
}

ZENC_DEVICE void mark_bitmap(const Segment& segment, const Segment& high, Check* check) {
    const EliasFanoIndex index(segment, high);
    const bool wrong = !index.has_count();
    if (thread_of_row() == 0 && wrong) blame(check, 0, WRONG_COUNT);
    if (thread_of_row() == 0 && !wrong) find_stray_bits(segment, check);
    for (u64 w = thread_of_row(); w < index.shape.high_words && !wrong; w += threads_of_row())
        index.mark(w, segment.slots, segment.bitmap, check);
}

// Begins listed segments. The words from work + i * work_words on are 0 before:
// scan_words(words_ranked(high[i].slots)).
ZENC_DEVICE void begin_listed(const Segment* segments, u64 n, const Segment* high, u64* work,
                              u64 work_words) {
    for_each_segment(n, [&](u64 i) {
        if (!is_listed(segments[i])) return;
        begin_bitmap(segments[i]);
        u64 found = 0;
        rank_one(high[i], work + i * work_words, found);
    });
}

ZENC_DEVICE void mark_listed(const Segment* segments, u64 n, const Segment* high, Check* checks) {
    for_each_segment(n, [&](u64 i) {
        if (is_listed(segments[i])) mark_bitmap(segments[i], high[i], checks + i);
    });
}

// Counts and ranks a bitmap where it lies. `work` is 0 before: scan_words(words_ranked(slots)) words.
ZENC_DEVICE void rank_bitmap(const Segment& segment, Check* check, i64* status, u64* work) {
    const bool wrong = has_wrong_count(segment);
    u64 found = 0;
    if (!wrong) rank_one(segment, work, found);
    if (thread_of_row() == 0 && (wrong || stray_bits(segment.bitmap, segment.slots)))
        blame(check, 0, wrong ? WRONG_COUNT : STRAY_BITS);
    settle(segment, found, check, status);
}

ZENC_DEVICE void decode_bitmaps(const Segment* segments, u64 n, Check* checks, i64* status, u64* work,
                                u64 work_words) {
    for_each_segment(n, [&](u64 i) {
        if (!has_bitmap(segments[i])) return;
        rank_bitmap(segments[i], checks + i, status + i, work + i * work_words);
        __syncthreads();  // the next segment may draw
    });
}

// Decodes a segment of any format by one block, in one launch.
ZENC_DEVICE void decode_by_block(const Segment& segment, const Segment& high, Check* check, i64* status,
                                 u64* work) {
    if (is_listed(segment)) {
        begin_bitmap(segment);
        rank_by_block(high);
        mark_bitmap(segment, high, check);
        __threadfence();
        __syncthreads();
    }
    rank_bitmap(segment, check, status, work);
    __syncthreads();  // the next segment may draw
}

// Makes bitmap and ranks, in one pass, of segments that did not come as bitmaps; also of those where a block
// has a segment to itself. `checks` [n] are cleared, and so are the words from work + i * work_words on: 1 +
// tiles_of_words(slots).
ZENC_DEVICE void decode_index(const Segment* segments, u64 n, const Segment* high, Check* checks, i64* status,
                              u64* work, u64 work_words) {
    ZENC_SHARED(u32, bits, 2 * THREADS);
    ZENC_SHARED(u64, range, 2);
    for_each_segment(n, [&](u64 i) {
        const Segment& segment = segments[i];
        u64* const counter = work + i * work_words;
        if (has_bitmap(segment)) {
            if (gridDim.x == 1) decode_by_block(segment, high[i], checks + i, status + i, counter);
            return;
        }
        u64 found = 0;
        const i64 wrong = wrong_at_once(segment);
        for (u64 number;
             wrong == 0 && (number = draw_tile(counter)) * THREADS < words_ranked(segment.slots);) {
            const u64 start = number * Tile::SLOTS, left = start < segment.slots ? segment.slots - start : 0;
            const Tile tile{bits, range, start, start + (left < Tile::SLOTS ? left : Tile::SLOTS)};
            const u64 at = start / 64 + threadIdx.x;
            if (number == 0 && threadIdx.x == 0) find_stray_bits(segment, checks + i);
            const u64 listed = left == 0 ? 0 : decoded_word(segment, tile, checks + i);
            const u64 word = at < words_of(segment.slots) ? listed & low_mask(segment.slots - 64 * at) : 0;
            store_words(segment, at, word, number, counter + 1);
            found += population(word);
        }
        if (wrong != 0 && thread_of_row() == 0) blame(checks + i, 0, wrong);
        settle(segment, found, checks + i, status + i);
        __syncthreads();  // the next segment may draw
    });
}

}  // namespace zenc
