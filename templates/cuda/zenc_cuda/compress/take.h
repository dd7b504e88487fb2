// Selected units go into the gradient, and all that is left stays; or they are marked, for selections that
// come one after another.
#pragma once

#include "zenc_cuda/compress/search.h"
#include "zenc_cuda/vectors.h"

namespace zenc {

// Where units go. Without a gradient they are marked.
template <class T>
struct Destination {
    const Moving& of;
    T* gradient;
    u8* marks;

    // Value i of the tensor is taken, or +0 becomes of it. Returns the square of what is left there.
    ZENC_DEVICE double move(u64 i, bool taken) const {
        const float x = of.left[i];
        if (!taken) {
            gradient[i] = Type<T>::round(0.0F);
            return static_cast<double>(x) * x;
        }
        const float left = x - Type<T>::widen(gradient[i] = Type<T>::round(x));
        keep(i, left);
        return static_cast<double>(left) * left;
    }

    // What is left of a value that is taken.
    ZENC_DEVICE void keep(u64 i, float left) const {
        of.left[i] = left;
        if (of.velocity != nullptr) of.velocity[i] = 0;
    }

    // Whether the keys of a selection are these values, without an order of their own.
    ZENC_DEVICE bool has_vectors(const Selecting& by, const Search& search) const {
        return gradient != nullptr && of.width == 1 && by.order == nullptr && by.keys == of.left &&
               search.first % 4 == 0 && in_vectors(by.keys, gradient);
    }
};

// The list gets what the lanes of a warp wait for: `entry` of N of each lane that `waits`. Lanes ask for room
// together, since all of a part have one counter.
template <u32 N, class Entry>
ZENC_DEVICE void append(const Selecting& by, u64 part, const bool (&waits)[N], Entry entry) {
    u32 all[N], before = 0, number = 0;
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        all[k] = __ballot_sync(ALL_LANES, waits[k]);
        number += static_cast<u32>(__popc(all[k]));
    }
    if (number == 0) return;
    u64 first = 0;
    if (lane() == 0) first = atomicAdd(&by.counters[part].listed, static_cast<u64>(number));
    first = __shfl_sync(ALL_LANES, first, 0);
    u64* const list = list_of(by, by.searches[part]) + first;
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        if (waits[k]) list[before + static_cast<u32>(__popc(all[k] & ((1U << lane()) - 1)))] = entry(k);
        before += static_cast<u32>(__popc(all[k]));
    }
}

// Single values whose magnitudes are their keys, which follow each other as the units do: of the `vectors` of
// four that the part begins with, some a lane at once, so that lanes ask for room seldom.
template <class T>
ZENC_DEVICE double take_vectors(const Selecting& by, u64 part, const Search& search, const Destination<T>& to,
                                u64 vectors, bool lists) {
    constexpr u32 TOGETHER = 4, N = 4 * TOGETHER;
    double squares = 0;
    for (u64 start = warp_of_row() * TOGETHER * WARP; start < vectors; start += TOGETHER * threads_of_row()) {
        Columns<float, 4> values[TOGETHER];
        bool waits[N];
        const auto number = [&](u32 k) { return 4 * (start + k / 4 * WARP + lane()) + k % 4; };
#pragma unroll
        for (u32 step = 0; step < TOGETHER; ++step)
            if (number(4 * step) < 4 * vectors)
                values[step] = Columns<float, 4>::load(by.keys + search.first + number(4 * step));
#pragma unroll
        for (u32 step = 0; step < TOGETHER; ++step) {
            const bool there = number(4 * step) < 4 * vectors;
            Columns<T, 4> out;
            for (u32 i = 0; i < 4; ++i) {
                const u32 k = 4 * step + i;
                const float x = there ? values[step].of[i] : 0.0F;
                const Verdict verdict = there ? verdict_of(search, magnitude_of(x), number(k)) : STAYS;
                const bool taken = verdict == IS_TAKEN;
                waits[k] = verdict == WAITS;
                out.of[i] = Type<T>::round(taken ? x : 0.0F);
                const float left = taken ? x - Type<T>::widen(out.of[i]) : x;
                if (taken) to.keep(search.first + number(k), left);
                squares += static_cast<double>(left) * left;
            }
            if (there) out.store(to.gradient + search.first + number(4 * step));
        }
        if (lists)
            append(by, part, waits, [&](u32 k) {
                return static_cast<u64>(magnitude_of(values[k / 4].of[k % 4])) << 32 | number(k);
            });
    }
    return squares;
}

// Everything that is known to be taken after the first digit, or after all of them, is moved; what waits is
// listed, if it has room, and is not taken yet.
//
// Reads 4 and writes 4 bytes a float32 that stays; 8 more are written of one that is taken.
template <class T>
ZENC_DEVICE void take(const Selecting& by, const Moving& of, const Drawing& drawn, T* gradient) {
    const Destination<T> to{of, gradient, by.marks};
    const Divider width(of.width);
    double squares = 0;
    for_each_part(by, [&](u64 part) {
        const Search search = by.searches[part];
        const bool lists = search.open && search.lists, is_random = drawn.least <= MAGNITUDE;
        const bool reads = !is_random && (search.open || search.magnitude != 0);  // else everything is taken
        const u64 values = gradient == nullptr ? 1 : of.width, n = search.units * values;
        const u64 vectors = reads && to.has_vectors(by, search) ? n / 4 : 0;
        squares += take_vectors(by, part, search, to, vectors, lists);
        for (u64 start = 4 * vectors + warp_of_row() * WARP; start < n; start += threads_of_row()) {
            const u64 i = start + lane(), number = values == 1 ? i : width.quotient(i);
            const bool first = i == number * values;
            bool waits[1] = {false};
            u32 magnitude = 0;
            if (i < n) {
                const u64 unit = unit_of(by, search, number);
                if (is_random) magnitude = random_word(drawn.key, unit) & MAGNITUDE;
                if (reads) magnitude = magnitude_of(by.keys[unit]);
                const Verdict verdict = is_random ? magnitude >= drawn.least ? IS_TAKEN : STAYS
                                                  : verdict_of(search, magnitude, number);
                waits[0] = verdict == WAITS && first;
                if (gradient != nullptr)
                    squares += to.move(unit * of.width + (i - number * values), verdict == IS_TAKEN);
                else if (verdict == IS_TAKEN)
                    by.marks[unit] = 1;
            }
            if (lists)
                append(by, part, waits, [&](u32) { return static_cast<u64>(magnitude) << 32 | number; });
        }
    });
    store_sum_of_block(squares, of.squares);
}

// What waited, once all digits are known: a thread a unit.
template <class T>
ZENC_DEVICE void take_waiting(const Selecting& by, const Moving& of, T* gradient) {
    const Destination<T> to{of, gradient, by.marks};
    double squares = 0;
    for_each_part(by, [&](u64 part) {
        const Search search = by.searches[part];
        const u64 border = search.magnitude >> BIN_SHIFT;
        for_waiting(by, part, search, 1, [&](u64 magnitude, u64 number) {
            if (border != 0 && magnitude >> BIN_SHIFT != border) return;
            if (verdict_of(search, magnitude, number) != IS_TAKEN) return;
            const u64 unit = unit_of(by, search, number);
            if (gradient == nullptr) by.marks[unit] = 1;
            for (u64 i = unit * of.width; gradient != nullptr && i < (unit + 1) * of.width; ++i) {
                const double before = static_cast<double>(of.left[i]) * of.left[i];
                squares += to.move(i, true) - before;
            }
        });
    });
    store_sum_of_block(squares, of.squares);
}

// All that is marked.
template <class T>
ZENC_DEVICE void take_marked(const u8* marks, const Moving& of, i64 units, T* gradient) {
    const Destination<T> to{of, gradient, nullptr};
    const Divider width(of.width);
    double squares = 0;
    for (u64 i = thread_of_row(); i < static_cast<u64>(units) * of.width; i += threads_of_row())
        squares += to.move(i, marks[of.width == 1 ? i : width.quotient(i)] != 0);
    store_sum_of_block(squares, of.squares);
}

// Of units that the selection before has taken nothing is left for the next one.
ZENC_DEVICE void forget_marked(const u8* marks, i64 units, float* keys) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(units); i += threads_of_row())
        if (marks[i]) keys[i] = 0;
}

// Units of a block of them that reach a magnitude, counted by a warp.
ZENC_DEVICE u64 count_from(const Selecting& by, u64 first, u64 length, u32 magnitude) {
    u64 count = 0;
    for (u64 i = first + lane(); i < first + length; i += WARP)
        count += magnitude_of(by.keys[i]) >= magnitude;
    return sum_of_warp(count);
}

// The threshold of the k greatest of a block of units, found bit by bit.
ZENC_DEVICE Threshold threshold_of_block(const Selecting& by, u64 first, u64 length, u64 k) {
    u32 reached = 0;
    for (u32 bit = 1U << 30; bit != 0; bit >>= 1) {
        const u64 found = count_from(by, first, length, reached | bit);
        if (found >= k) reached |= bit;
    }
    const u64 above = reached == MAGNITUDE ? 0 : count_from(by, first, length, reached + 1);
    return {reached, k - above};
}

// The k greatest of each block of `block` units; of a shorter last one as large a share, one at least. A warp
// has a block of units, and reads it 33 times: blocks are to fit in the first cache.
template <class T>
ZENC_DEVICE void take_of_blocks(const Selecting& by, const Moving& of, i64 all, i64 block, i64 k,
                                T* gradient) {
    const Destination<T> to{of, gradient, by.marks};
    const u64 units = static_cast<u64>(all), of_block = static_cast<u64>(block), wanted = static_cast<u64>(k);
    double squares = 0;
    for (u64 at = warp_of_row(); at * of_block < units; at += warps_of_row()) {
        const u64 first = at * of_block, length = units - first < of_block ? units - first : of_block;
        const u64 share = length == of_block ? wanted : wanted * length / of_block;
        Threshold threshold = threshold_of_block(by, first, length, share == 0 ? 1 : share);
        for (u64 start = first; start < first + length; start += WARP) {
            const u64 unit = start + lane();
            const bool there = unit < first + length;
            const u32 magnitude = there ? magnitude_of(by.keys[unit]) : 0;
            const u32 equal = __ballot_sync(ALL_LANES, there && magnitude == threshold.magnitude);
            const u64 before = static_cast<u64>(__popc(equal & ((1U << lane()) - 1)));
            const bool taken = there && is_taken(threshold, magnitude, before);
            const u64 equals = static_cast<u64>(__popc(equal));
            threshold.equal -= equals < threshold.equal ? equals : threshold.equal;
            if (gradient == nullptr) {
                if (taken) by.marks[unit] = 1;
                continue;
            }
            const u32 all_taken = __ballot_sync(ALL_LANES, taken);
            const u64 end = first + length - start < WARP ? first + length - start : WARP;
            for (u64 i = lane(); i < end * of.width; i += WARP)
                squares += to.move(start * of.width + i, all_taken >> (i / of.width) & 1);
        }
    }
    store_sum_of_block(squares, of.squares);
}

}  // namespace zenc
