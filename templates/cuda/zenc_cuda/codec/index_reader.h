// Segments without a bitmap, in the formats coo and elias_fano: their slots are found in the index, a window
// of 2,048 slots at a time, by one warp. So what a call has received and what it has sent needs no marks, and
// a call little memory (docs/adr/0026-memory-of-a-call.md). Pieces that have a bitmap are read from that.
//
// Of the index of each segment every launch reads all, and some words more for each window, to find its first
// entry.
#pragma once

#include "zenc_cuda/codec/decode.h"
#include "zenc_cuda/merge/expand.h"
#include "zenc_cuda/merge/merge.h"

namespace zenc {

constexpr u64 WINDOW_SLOTS = 64 * WINDOW_WORDS;

// What a lane has of a window: a word of the bitmap, and how many rows precede the window.
struct Window {
    u64 word;
    u64 before;
};

// `halves` [2 * WINDOW_WORDS] is shared memory of the warp.
struct ReadWindow {
    const Segment& segment;
    u64 start;
    u32* halves;

    template <class Entries>
    ZENC_DEVICE Window operator()(const Entries& entries) const {
        u32* const mine = halves + 2 * lane();
        mine[0] = mine[1] = 0;
        __syncwarp();
        const u64 end = segment.slots - start < WINDOW_SLOTS ? segment.slots : start + WINDOW_SLOTS;
        const u64 listed = entries.visit_window(
            start, end, [&](u64 slot) { atomicOr(halves + (slot - start) / 32, 1U << (slot % 32)); });
        __syncwarp();
        const u64 word = static_cast<u64>(mine[1]) << 32 | mine[0], first = start + 64 * lane();
        const u64 there = first < segment.slots ? low_mask(segment.slots - first) : 0;
        return {(entries.absent() ? ~word : word) & there, entries.absent() ? start - listed : listed};
    }
};

// use(entries) for what an encoded segment lists, by a warp.
template <class Use>
ZENC_DEVICE auto with_entries(const Segment& segment, Use use) {
    if (segment.format == FORMAT_ELIAS_FANO) return use(EliasFanoIndex(segment));
    if (coo_index_bytes(segment.slots) == 4) return use(CooIndex<u32>(segment));
    return use(CooIndex<u64>(segment));
}

// The window from slot `start` on, a multiple of WINDOW_SLOTS below the segment's slots.
ZENC_DEVICE Window window_of(const Segment& segment, u64 start, u32* halves) {
    if (segment.bitmap != nullptr) {
        const Slots slots(segment);
        const u64 at = start / 64 + lane();
        return {at < slots.words ? segment.bitmap[at] : 0, slots.below(start / 64)};
    }
    if (segment.status != nullptr && *segment.status != 0) return {0, 0};
    return with_entries(segment, ReadWindow{segment, start, halves});
}

// visit(number of its first word) for the windows of this warp.
template <class Visit>
ZENC_DEVICE void for_each_window(const Segment& segment, u64 warp, u64 warps, Visit visit) {
    for (u64 w = warp; w * WINDOW_SLOTS < segment.slots; w += warps) visit(w * WINDOW_WORDS);
}

// As unite.
ZENC_DEVICE void unite_encoded(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces) {
    ZENC_SHARED(u32, halves, WARPS * 2 * WINDOW_WORDS);
    for_each_segment(n, [&](u64 i) {
        for_each_window(targets[i], warp_of_row(), warps_of_row(), [&](u64 begin) {
            u64 word = 0;
            for (u64 k = 0; k < of[i].number; ++k)
                word |= window_of(pieces[of[i].first + k], 64 * begin,
                                  &halves[0] + threadIdx.x / WARP * 2 * WINDOW_WORDS)
                            .word;
            if (begin + lane() < words_of(targets[i].slots)) targets[i].bitmap[begin + lane()] = word;
        });
    });
}

// The pieces of a sum in one window, all of whose words are in shared memory of the warp.
template <class T>
struct WindowPieces {
    const Segment* pieces;
    u64 number;
    u64 width;
    u32* halves;  // [number][2 * WINDOW_WORDS]
    u32* below;   // [number][WINDOW_WORDS]: rows of the words of the window before this one
    u64* before;  // [number]: rows before the window

    ZENC_DEVICE void load(u64 begin) const {
        __syncwarp();  // nobody reads the last window any more
        for (u64 k = 0; k < number; ++k) {
            u32* const words = halves + k * 2 * WINDOW_WORDS;
            const Window window = window_of(pieces[k], 64 * begin, words);
            const u32 rows = static_cast<u32>(population(window.word));
            words[2 * lane()] = static_cast<u32>(window.word);
            words[2 * lane() + 1] = static_cast<u32>(window.word >> 32);
            below[k * WINDOW_WORDS + lane()] = inclusive_in_warp(rows) - rows;
            if (lane() == 0) before[k] = window.before;
        }
        __syncwarp();
    }

    ZENC_DEVICE const T* row(u64 k, u64 word, u32 bit) const {
        const u64 at = k * WINDOW_WORDS + word % WINDOW_WORDS;
        const u64 bits = static_cast<u64>(halves[2 * at + 1]) << 32 | halves[2 * at];
        if ((bits >> bit & 1) == 0) return nullptr;
        const u64 row = before[k] + below[at] + population(bits & low_mask(bit));
        return static_cast<const T*>(pieces[k].values) + row * width;
    }
};

// As merge; a warp sums a window at a time. Targets have bitmap and ranks, and 1 to WINDOWS pieces.
template <class T>
ZENC_DEVICE void merge_encoded(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces,
                               u64 width) {
    ZENC_SHARED(u32, halves, 2 * WINDOWS * WINDOW_WORDS);
    ZENC_SHARED(u32, below, WINDOWS * WINDOW_WORDS);
    ZENC_SHARED(u64, before, WINDOWS);
    for_each_segment(n, [&](u64 i) {
        const u64 m = of[i].number, warps = warps_that_sum(m), warp = threadIdx.x / WARP;
        const WindowPieces<T> mine{pieces + of[i].first,
                                   m,
                                   width,
                                   &halves[0] + warp % warps * m * 2 * WINDOW_WORDS,
                                   &below[0] + warp % warps * m * WINDOW_WORDS,
                                   &before[0] + warp % warps * m};
        const Slots target(targets[i]);
        const auto sum = [&](u64 begin) {
            mine.load(begin);
            const u64 word = begin + lane() < target.words ? target.bitmap[begin + lane()] : 0;
            WindowRows batch(begin, word, target.below(begin));
            while (batch.next()) merge_batch<T>(mine, batch, width, targets[i].values);
        };
        if (warp < warps) for_each_window(targets[i], blockIdx.x * warps + warp, gridDim.x * warps, sum);
        __syncthreads();  // other pieces are shared among other warps
    });
}

// As mark_found.
template <class Mapping>
ZENC_DEVICE void mark_found_encoded(const Geometry<Mapping>& geometry, const Segment* segments, u64* bitmap) {
    ZENC_SHARED(u32, halves, WARPS * 2 * WINDOW_WORDS);
    u32* const mine = &halves[0] + threadIdx.x / WARP * 2 * WINDOW_WORDS;
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        for_each_window(segments[part], warp_of_row(), warps_of_row(), [&](u64 begin) {
            const u64 first = geometry.first_slot(part) + 64 * (begin + lane());
            for_each_bit(window_of(segments[part], 64 * begin, mine).word, [&](u64 bit) {
                const u64 unit = geometry.mapping.unit(first + bit);
                atomicOr(bitmap + unit / 64, 1ULL << (unit % 64));
            });
        });
    });
}

// As expand_units, but rows go from where they lie in their parts to where they belong in the list. Reads
// each index once, 12 bytes of `found` and the row for each row; writes units and rows once.
template <class Mapping>
ZENC_DEVICE void expand_encoded(const Geometry<Mapping>& geometry, const Segment* segments,
                                const Segment* found, u64 row_bytes, i64* units, u8* out) {
    ZENC_SHARED(u32, halves, WARPS * 2 * WINDOW_WORDS);
    u32* const mine = &halves[0] + threadIdx.x / WARP * 2 * WINDOW_WORDS;
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        const u8* const values = static_cast<const u8*>(segments[part].values);
        const u64 start = Mapping::IS_IDENTITY ? rows_before(segments, part) : 0;
        for_each_window(segments[part], warp_of_row(), warps_of_row(), [&](u64 begin) {
            const Window window = window_of(segments[part], 64 * begin, mine);
            WindowRows batch(begin, window.word, window.before);
            while (batch.next()) {
                u64 to = start + batch.first + lane();
                if (batch.has_row()) {
                    const u64 slot = geometry.first_slot(part) + 64 * batch.word + batch.bit;
                    const u64 unit = geometry.mapping.unit(slot);
                    if constexpr (!Mapping::IS_IDENTITY)
                        to = static_cast<u64>(row_of(*found, unit / 64, static_cast<u32>(unit % 64)));
                    units[to] = static_cast<i64>(unit);
                }
                scatter_rows(values + batch.first * row_bytes, batch.rows, row_bytes, out + to * row_bytes);
            }
        });
    });
}

}  // namespace zenc
