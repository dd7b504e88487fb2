// Merging segments of one part: for every slot of the union, the values of the segments that have it are
// added in the order of the list. Every sum is made by one thread: no atomics, and the same bits in every
// run.
//
// Where rows are narrow, `sum` does all in one pass. Wide rows are summed by `merge` once the union is
// counted, in room of just its size, and by their numbers: so a few rows keep all of a GPU busy.
#pragma once

#include "zenc_cuda/rows.h"

namespace zenc {

constexpr u64 WIDE = 16;  // values: from here on a warp sums a row at a time

// A sum of at least one value; a single one keeps its bits.
template <class T>
struct Sum {
    T alone;
    typename Arithmetic<T>::Sum sum;

    ZENC_DEVICE void add(const Arithmetic<T>& by, T value, bool first) {
        if (first) alone = value;
        sum = first ? by.widen(value) : sum + by.widen(value);
    }

    ZENC_DEVICE T of(const Arithmetic<T>& by, u64 values) const {
        return values == 1 ? alone : by.round(sum);
    }
};

// The pieces of a sum.
template <class T>
struct PiecesOf {
    const Segment* pieces;
    u64 number;
    u64 width;
    Arithmetic<T> by;

    ZENC_DEVICE const T* row(u64 k, u64 word, u32 bit) const {
        return reinterpret_cast<const T*>(address_of(pieces[k], word, bit, width * sizeof(T)));
    }

    // Returns the row of this lane's piece, counted from piece `first`, or null.
    ZENC_DEVICE const T* row_of_lane(u64 first, u64 word, u32 bit) const {
        return first + lane() < number ? row(first + lane(), word, bit) : nullptr;
    }
};

// The sum of a column of the rows that pieces have for a slot.
template <class T>
ZENC_DEVICE T sum_of_column(const PiecesOf<T>& pieces, u64 word, u32 bit, u32 column) {
    Sum<T> sum{};
    u64 added = 0;
#pragma unroll 1  // few registers, many warps: these are waiting for memory
    for (u64 k = 0; k < pieces.number; ++k)
        if (const T* const from = pieces.row(k, word, bit)) sum.add(pieces.by, from[column], added++ == 0);
    return sum.of(pieces.by, added);
}

// Merges narrow rows, a thread a value: lane k knows the slot of row k.
template <class T>
ZENC_DEVICE void merge_narrow(const PiecesOf<T>& pieces, const Batch& batch, u32 width, T* out) {
    const u32 all = batch.rows * width;
    for (u32 i = lane(); i - lane() < all; i += WARP) {
        const u32 row = width == 1 ? i : i / width;  // no division for single values
        const u64 word = __shfl_sync(ALL_LANES, batch.word, static_cast<int>(row % WARP));
        const u32 bit = __shfl_sync(ALL_LANES, batch.bit, static_cast<int>(row % WARP));
        if (i < all) out[i] = sum_of_column(pieces, word, bit, i - row * width);
    }
}

// Merges a row by a warp: its lanes have looked for it in the first 32 pieces (`mine`), and look in 32 more
// at once; then each adds up N columns at a time.
template <u32 N, class T>
ZENC_DEVICE void merge_row(const PiecesOf<T>& pieces, const T* mine, u64 word, u32 bit, u64 width, T* out) {
#pragma unroll 1
    for (u64 first = N * lane(); first - N * lane() < width; first += N * WARP) {
        Sum<T> sums[N] = {};
        u64 added = 0;
#pragma unroll 1
        for (u64 of_these = 0; of_these < pieces.number; of_these += WARP) {
            const T* const here = of_these == 0 ? mine : pieces.row_of_lane(of_these, word, bit);
            u32 have = __ballot_sync(ALL_LANES, here != nullptr);
            while (have != 0) {
                Columns<T, N> loaded[AHEAD] = {};
                u32 left = have;
#pragma unroll
                for (u32 step = 0; step < AHEAD; ++step, left &= left - 1) {
                    const T* const from =
                        shuffle(here, static_cast<u32>(__ffs(static_cast<int>(left)) - 1) % WARP);
                    if (left != 0 && first < width) loaded[step] = Columns<T, N>::load(from + first);
                }
#pragma unroll
                for (u32 step = 0; step < AHEAD && have != 0; ++step, have &= have - 1, ++added)
#pragma unroll
                    for (u32 c = 0; c < N; ++c) sums[c].add(pieces.by, loaded[step].of[c], added == 0);
            }
        }
        Columns<T, N> made;
#pragma unroll
        for (u32 c = 0; c < N; ++c) made.of[c] = sums[c].of(pieces.by, added);
        if (first < width) made.store(out + first);
    }
}

template <u32 N, class T>
ZENC_DEVICE void copy_row(const T* from, u64 width, T* to) {
#pragma unroll 1
    for (u64 first = N * lane(); first < width; first += AHEAD * N * WARP) {
        Columns<T, N> loaded[AHEAD];
        for (u32 k = 0; k < AHEAD; ++k)
            if (first + k * N * WARP < width) loaded[k] = Columns<T, N>::load(from + first + k * N * WARP);
        for (u32 k = 0; k < AHEAD; ++k)
            if (first + k * N * WARP < width) loaded[k].store(to + first + k * N * WARP);
    }
}

// Merges the wide rows of a batch, which lie at vectors of N values; values [rows, width] are the target's. A
// row that only one of up to 32 pieces has is copied.
template <u32 N, class T>
ZENC_DEVICE void merge_wide(const PiecesOf<T>& pieces, const Batch& batch, u64 width, T* out) {
#pragma unroll 1
    for (u32 row = 0; row < batch.rows; ++row) {
        const u64 word = __shfl_sync(ALL_LANES, batch.word, static_cast<int>(row));
        const u32 bit = __shfl_sync(ALL_LANES, batch.bit, static_cast<int>(row));
        const T* const mine = pieces.row_of_lane(0, word, bit);
        const u32 have = __ballot_sync(ALL_LANES, mine != nullptr);
        const T* const first = shuffle(mine, static_cast<u32>(__ffs(static_cast<int>(have)) - 1) % WARP);
        if (pieces.number > WARP || __popc(have) != 1)
            merge_row<N>(pieces, mine, word, bit, width, out + row * width);
        else
            copy_row<N>(first, width, out + row * width);
    }
}

template <class T>
ZENC_DEVICE void merge_batch(const PiecesOf<T>& pieces, const Batch& batch, u64 width, void* values) {
    T* const out = static_cast<T*>(values) + batch.first * width;
    if (width < WIDE) return merge_narrow(pieces, batch, static_cast<u32>(width), out);
    u64 together = address_bits(out) | width * sizeof(T);
    for (u64 k = lane(); k < pieces.number; k += WARP) together |= address_bits(pieces.pieces[k].values);
    if (__any_sync(ALL_LANES, together % sizeof(uint4) != 0))
        merge_wide<1>(pieces, batch, width, out);
    else
        merge_wide<sizeof(uint4) / sizeof(T)>(pieces, batch, width, out);
}

// Merges the values of targets[i], whose bitmap and ranks exist.
template <class T>
ZENC_DEVICE void merge(const Segment* targets, u64 n, const Pieces* of, const Segment* pieces, u64 width,
                       i64 dtype) {
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> mine{pieces + of[i].first, of[i].number, width, Arithmetic<T>(dtype)};
        RowBatches batch(targets[i], width * sizeof(T));
        while (batch.next()) merge_batch(mine, batch, width, targets[i].values);
    });
}

// Makes a tile of a union, `each` words a warp: bitmap and ranks, and as many values as there is room for.
template <class T>
ZENC_DEVICE void sum_tile(const Segment& target, const PiecesOf<T>& pieces, u64 each, u64 tile, u64* states) {
    const u64 begin = (tile * WARPS + threadIdx.x / WARP) * each, at = lane() < each ? begin + lane() : ~0ULL;
    u64 word = 0;
#pragma unroll 8
    for (u64 k = 0; at < words_of(target.slots) && k < pieces.number; ++k)
        word |= pieces.pieces[k].bitmap[at];
    const u64 before = store_words(target, at, word, tile, states);
    WindowRows batch(begin, word, before);
    while (target.values != nullptr && batch.next() && batch.cut(target.count))
        merge_narrow(pieces, batch, static_cast<u32>(pieces.width),
                     static_cast<T*>(target.values) + batch.first * pieces.width);
}

// targets[i] = the union of its pieces, with ranks; and where targets[i].values are not null, the sums, as
// far as there is room for targets[i].count of them. Segment i counts in the words from work + i * work_words
// on, which are 0 before: 1 + tiles_summed(slots, row bytes) of them.
template <class T>
ZENC_DEVICE void sum(const Segment* targets, u64 n, const Pieces* of, const Segment* pieces, u64 width,
                     i64 dtype, u64* work, u64 work_words) {
    const u64 each = words_summed(width * sizeof(T));
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> mine{pieces + of[i].first, of[i].number, width, Arithmetic<T>(dtype)};
        u64* const counter = work + i * work_words;
        for (u64 tile; (tile = draw_tile(counter)) * WARPS * each < words_ranked(targets[i].slots);)
            sum_tile(targets[i], mine, each, tile, counter + 1);
        __syncthreads();  // the next segment may draw
    });
}

// Segments of all slots that still say which units some rank has: of others all values are -0. A sum is -0
// only where all of its terms are.

template <class Bits>
constexpr Bits NEGATIVE_ZERO = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));

// The values of absent units: zeros of either sign, or -0 alone if they are `marked`.
template <class Bits>
struct Absent {
    Bits value, counting;

    ZENC_DEVICE explicit Absent(bool marked)
        : value(marked ? NEGATIVE_ZERO<Bits> : Bits{0}),
          counting(static_cast<Bits>(marked ? ~Bits{0} : ~NEGATIVE_ZERO<Bits>)) {}

    // The bits in which a value differs.
    ZENC_DEVICE Bits differs(Bits bits) const { return static_cast<Bits>((bits ^ value) & counting); }
};

// Zeros of to[i] [count, width] become +0 in slots of from[i], and -0 in the others that to[i] has.
template <class Bits>
ZENC_DEVICE void mark_absent(const Segment* to, u64 n, const Segment* from, u64 width) {
    for_each_segment(n, [&](u64 i) {
        RowBatches batch(to[i], width * sizeof(Bits));
        while (batch.next()) {
            const bool has = batch.has_row() && (from[i].bitmap[batch.word] >> batch.bit & 1) != 0;
            const u32 there = __ballot_sync(ALL_LANES, has);
            Bits* const values = static_cast<Bits*>(to[i].values) + batch.first * width;
            for (u64 k = lane(); k < batch.rows * width; k += WARP)
                if (magnitude_bits(values[k]) == 0)
                    values[k] = (there >> (k / width) & 1) != 0 ? Bits{0} : NEGATIVE_ZERO<Bits>;
        }
    });
}

// Leaving out the units of a segment that hold nothing but zeros, of either sign, as a dense phase brings
// them. Any other bits are kept: NaN, infinities and the smallest denormals are something. `spread` copies
// what is kept.

// The bits of `word` that `chosen` names, which counts them from the lowest one.
ZENC_DEVICE u64 deposit(u64 chosen, u64 word) {
    if (word == ~0ULL) return chosen;
    u64 result = 0;
    for (; word != 0 && chosen != 0; word &= word - 1, chosen >>= 1)
        if ((chosen & 1) != 0) result |= word & -word;
    return result;
}

// Returns a bit for each of n <= 64 narrow rows that is not absent. Each lane looks at two.
template <class Bits>
ZENC_DEVICE u64 nonzero_narrow(const Bits* rows, u32 n, u32 width, Absent<Bits> absent) {
    u32 halves[2];
    for (u32 half = 0; half < 2; ++half) {
        const u32 row = half * WARP + lane();
        Bits any = 0;
        for (u32 i = 0; row < n && i < width; ++i) any |= absent.differs(rows[row * width + i]);
        halves[half] = __ballot_sync(ALL_LANES, any != 0);
    }
    return static_cast<u64>(halves[1]) << 32 | halves[0];
}

// nonzero_narrow for wide rows: the warp reads one after another, until it finds something.
template <class Bits>
ZENC_DEVICE u64 nonzero_wide(const Bits* rows, u32 n, u64 width, Absent<Bits> absent) {
    u64 found = 0;
    for (u32 row = 0; row < n; ++row, rows += width) {
        bool any = false;
        for (u64 first = 0; first < width && !any; first += WARP) {
            const u64 i = first + lane();
            any = __any_sync(ALL_LANES, i < width && absent.differs(rows[i]) != 0);
        }
        found |= static_cast<u64>(any) << row;
    }
    return found;
}

// to[i].bitmap = the slots of from[i] whose rows of `width` values are not all zero, or not all -0 where
// absent units are `marked`: a warp a word.
template <class Bits>
ZENC_DEVICE void mark_nonzero(const Segment* to, u64 n, const Segment* from, u64 width, bool marked) {
    const Absent<Bits> absent(marked);
    for_each_segment(n, [&](u64 i) {
        const Slots slots(from[i]);
        for (u64 w = warp_of_row(); w < slots.words; w += warps_of_row()) {
            const u64 word = slots.bitmap[w];
            const u32 has = static_cast<u32>(population(word));
            const Bits* const rows = static_cast<const Bits*>(from[i].values) + slots.below(w) * width;
            const u64 found = width < WARP ? nonzero_narrow(rows, has, static_cast<u32>(width), absent)
                                           : nonzero_wide(rows, has, width, absent);
            if (lane() == 0) to[i].bitmap[w] = deposit(found, word);
        }
    });
}

}  // namespace zenc
