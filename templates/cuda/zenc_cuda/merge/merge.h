// Merging segments of one part: for every slot of the union, the values of the segments that have it are
// added in the order of the list. Every sum is made by one thread: no atomics, and the same bits in every
// run.
//
// unite reads the bitmaps of all pieces, and writes that of the target. merge reads the target's bitmap and
// ranks, for each slot of the union (narrow rows: for each value) a word of every piece, of those that have
// it one of ranks and perhaps another, and every row once; it writes every row of the union once.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/primitives/copy_rows.h"
#include "zenc_cuda/primitives/row_batches.h"

namespace zenc {

constexpr u64 WIDE = 16;  // values: from here on a warp sums a row at a time

// targets[i].bitmap = the union of those of its pieces; every word is written.
ZENC_DEVICE void unite(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces) {
    for_each_segment(n, [&](u64 i) {
        const Segment* const mine = pieces + of[i].first;
        for (u64 w = thread_of_row(); w < words_of(targets[i].slots); w += threads_of_row()) {
            u64 word = 0;
            for (u64 k = 0; k < of[i].number; ++k) word |= mine[k].bitmap[w];
            targets[i].bitmap[w] = word;
        }
    });
}

// A sum of one value or more. One alone keeps its bits.
template <class T>
struct Sum {
    T alone;
    typename Type<T>::Sum sum;

    ZENC_DEVICE void add(T value, bool first) {
        if (first) alone = value;
        sum = first ? Type<T>::widen(value) : sum + Type<T>::widen(value);
    }

    ZENC_DEVICE T of(u64 values) const { return values == 1 ? alone : Type<T>::round(sum); }
};

// The pieces of a sum: where one of them has the row of a slot, or null.
template <class T>
struct PiecesOf {
    const Segment* pieces;
    u64 number;
    u64 width;

    ZENC_DEVICE const T* row(u64 k, u64 word, u32 bit) const {
        return reinterpret_cast<const T*>(address_of(pieces[k], word, bit, width * sizeof(T)));
    }
};

// A thread a value, for rows of a few: lane k knows the slot of row k.
template <class T>
ZENC_DEVICE void merge_narrow(const PiecesOf<T>& pieces, const Batch& batch, u32 width, T* out) {
    const u32 all = batch.rows * width;
    for (u32 i = lane(); i - lane() < all; i += WARP) {
        const u32 row = width == 1 ? i : i / width;  // no division for single values
        const u64 word = __shfl_sync(ALL_LANES, batch.word, static_cast<int>(row % WARP));
        const u32 bit = __shfl_sync(ALL_LANES, batch.bit, static_cast<int>(row % WARP));
        if (i >= all) continue;
        Sum<T> sum{};
        u64 added = 0;
#pragma unroll 1  // few registers, many warps: these are waiting for memory
        for (u64 k = 0; k < pieces.number; ++k)
            if (const T* const from = pieces.row(k, word, bit)) sum.add(from[i - row * width], added++ == 0);
        out[i] = sum.of(added);
    }
}

// A warp a row: its lanes look for the row in 32 pieces at once, then add up columns.
template <class T>
ZENC_DEVICE void merge_row(const PiecesOf<T>& pieces, u64 word, u32 bit, u64 width, T* out) {
    constexpr u32 EACH = 4;  // columns of a lane
    for (u64 first = lane(); first - lane() < width; first += EACH * WARP) {
        Sum<T> sums[EACH] = {};
        u64 added = 0;
        for (u64 of_these = 0; of_these < pieces.number; of_these += WARP) {
            const u64 k = of_these + lane();
            const T* const mine = k < pieces.number ? pieces.row(k, word, bit) : nullptr;
            for (u32 have = __ballot_sync(ALL_LANES, mine != nullptr); have != 0; have &= have - 1) {
                const T* const from = shuffle(mine, static_cast<u32>(__ffs(static_cast<int>(have)) - 1));
                for (u32 c = 0; c < EACH; ++c)
                    if (const u64 column = first + c * WARP; column < width)
                        sums[c].add(from[column], added == 0);
                ++added;
            }
        }
        for (u32 c = 0; c < EACH; ++c)
            if (const u64 column = first + c * WARP; column < width) out[column] = sums[c].of(added);
    }
}

// All rows of a batch; values [rows, width] are those of the target.
template <class T>
ZENC_DEVICE void merge_batch(const PiecesOf<T>& pieces, const Batch& batch, u64 width, void* values) {
    T* const out = static_cast<T*>(values) + batch.first * width;
    if (width < WIDE) return merge_narrow(pieces, batch, static_cast<u32>(width), out);
    for (u32 row = 0; row < batch.rows; ++row) {
        const u64 word = __shfl_sync(ALL_LANES, batch.word, static_cast<int>(row));
        const u32 bit = __shfl_sync(ALL_LANES, batch.bit, static_cast<int>(row));
        merge_row(pieces, word, bit, width, out + row * width);
    }
}

template <class T>
ZENC_DEVICE void merge(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces, u64 width) {
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> mine{pieces + of[i].first, of[i].number, width};
        RowBatches batch(targets[i], width * sizeof(T));
        while (batch.next()) merge_batch<T>(mine, batch, width, targets[i].values);
    });
}

}  // namespace zenc
