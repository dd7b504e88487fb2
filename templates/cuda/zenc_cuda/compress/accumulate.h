// A rank's contribution before selection: its gradient and what it has kept, in one pass; with a list of
// those units that may be the greatest of it.
#pragma once

#include "zenc_cuda/compress/search.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// The sums of N values, as one lane holds them.
template <class T, u32 N>
struct Added {
    Columns<T, N> gradient;
    Columns<float, N> residual, velocity;
};

// `Adding` with the type of its gradient.
template <class T>
struct Accumulating {
    const Adding& of;

    ZENC_DEVICE const T* gradient() const { return static_cast<const T*>(of.gradient); }

    ZENC_DEVICE bool has_vectors() const {
        return in_vectors(of.gradient, of.residual, of.out, of.velocity, of.velocity_out, of.taken);
    }

    template <u32 N>
    ZENC_DEVICE Added<T, N> load(u64 i) const {
        Added<T, N> found;
        found.gradient = Columns<T, N>::load(gradient() + i);
        found.residual =
            of.residual == nullptr ? Columns<float, N>{} : Columns<float, N>::load(of.residual + i);
        found.velocity =
            of.velocity == nullptr ? Columns<float, N>{} : Columns<float, N>::load(of.velocity + i);
        return found;
    }

    // Returns value k of `found`, and updates its velocity.
    template <u32 N>
    ZENC_DEVICE float sum(Added<T, N>& found, u32 k) const {
        float added = Type<T>::widen(found.gradient.of[k]);
        if (of.velocity != nullptr)
            added = float_of(static_cast<u32>(of.factor)) * found.velocity.of[k] + added;
        found.velocity.of[k] = added;
        return of.residual == nullptr ? added : found.residual.of[k] + added;
    }

    // The magnitude of value i.
    ZENC_DEVICE u32 magnitude(u64 i) const {
        auto found = load<1>(i);
        return magnitude_of(sum(found, 0));
    }
};

// Sums of squares of the values that a thread has seen, and their greatest magnitude.
struct Accumulated {
    double gradient, left;
    u32 greatest;
};

// Writes N values from number i on, after a finished search has taken its own, and visits their magnitudes.
template <u32 N, class T, class Visit>
ZENC_DEVICE void store_sums(const Accumulating<T>& sums, u64 i, Added<T, N>& found, const Search& search,
                            Accumulated& facts, Visit visit) {
    const Adding& of = sums.of;
    Columns<float, N> out;
    Columns<T, N> taken{};
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        const float gradient = Type<T>::widen(found.gradient.of[k]);
        float x = sums.sum(found, k);
        const u32 magnitude = magnitude_of(x);
        facts.gradient += static_cast<double>(gradient) * gradient;
        raise(facts.greatest, magnitude);
        visit(k, magnitude);
        if (of.taken != nullptr) {
            const bool takes = is_taken(search, magnitude, 0);
            taken.of[k] = Type<T>::round(takes ? x : 0.0F);
            if (takes) x -= Type<T>::widen(taken.of[k]);
            if (takes && of.clears) found.velocity.of[k] = 0;
        }
        facts.left += static_cast<double>(x) * x;
        out.of[k] = x;
    }
    if (of.velocity_out != nullptr) found.velocity.store(of.velocity_out + i);
    if (of.out != nullptr) out.store(of.out + i);
    if (of.taken != nullptr) taken.store(static_cast<T*>(of.taken) + i);
}

constexpr u32 ROUND = 8 * THREADS;    // values that a block adds up before its threads meet
constexpr u32 ASIDE = 3 * ROUND / 2;  // units that it puts aside before it lists them

// A block's additions to the list of a part: units that its threads have put aside.
struct Listing {
    u64* list;
    u64 room;
    u64* listed;  // units in the list, those that found no room included
    u64* aside;   // shared memory, as `put`
    u32* put;

    ZENC_DEVICE void add(u32 magnitude, u64 number) const {
        aside[atomicAdd(put, 1U)] = static_cast<u64>(magnitude) << 32 | number;
    }

    // Lists what was put aside if one more round might not fit, or at the end. Threads meet here.
    ZENC_DEVICE void flush(bool end) const {
        ZENC_SHARED(u64, first, 1);
        __syncthreads();
        const u32 all = *put;
        __syncthreads();
        if (all == 0 || (all <= ASIDE - ROUND && !end)) return;
        if (threadIdx.x == 0) {
            *first = atomicAdd(listed, static_cast<u64>(all));
            *put = 0;
        }
        __syncthreads();
        for (u32 i = threadIdx.x; i < all; i += THREADS)
            if (*first + i < room) list[*first + i] = aside[i];
        __syncthreads();
    }
};

// Accumulates this block's values of a part, and lists those that may be taken.
template <class T>
ZENC_DEVICE void accumulate_part(const Accumulating<T>& sums, const Selecting& by, const Search& search,
                                 const Listing& listing, Accumulated& facts) {
    constexpr u32 N = 4, TOGETHER = ROUND / THREADS / N;
    const bool whole = sums.has_vectors() && search.first % N == 0 && by.order == nullptr;
    const auto visitor = [&](u64 number) {
        return [&, number](u32 k, u32 magnitude) {
            if (magnitude >= search.least) listing.add(magnitude, number + k);
        };
    };
    for (u64 start = blockIdx.x * static_cast<u64>(ROUND); start < search.units; start += gridDim.x * ROUND) {
        if (whole && start + ROUND <= search.units) {
            Added<T, N> found[TOGETHER];
            const u64 first = start + N * threadIdx.x;
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k)
                found[k] = sums.template load<N>(search.first + first + k * N * THREADS);
#pragma unroll
            for (u32 k = 0; k < TOGETHER; ++k) {
                const u64 number = first + k * N * THREADS;
                store_sums(sums, search.first + number, found[k], search, facts, visitor(number));
            }
        } else {
            const u64 end = start + ROUND < search.units ? start + ROUND : search.units;
            for (u64 number = start + threadIdx.x; number < end; number += THREADS) {
                const u64 i = unit_of(by, search, number);
                auto found = sums.template load<1>(i);
                store_sums(sums, i, found, search, facts, visitor(number));
            }
        }
        if (search.least < NONE_LISTED) listing.flush(false);
    }
}

// out = residual + gradient; with `velocity_out`, that becomes m * velocity + gradient and is added in place
// of the gradient. The greatest magnitude raises *greatest; if that is null, values are only looked at.
// Searches get lists of the units that they may take; without searches, `order` is null.
template <class T>
ZENC_DEVICE void accumulate(const Adding& of, u64 n, u64* greatest, double* squares, double* left,
                            const Selecting& by) {
    ZENC_SHARED(u64, aside, ASIDE);
    ZENC_SHARED(u32, put, 1);
    const Accumulating<T> sums{of};
    Accumulated facts{};
    if (threadIdx.x == 0) *put = 0;
    __syncthreads();
    if (by.searches == nullptr) {
        const Search all{0, n, 0, 0, 0, 0, 0, 0, NONE_LISTED, 0};
        accumulate_part(sums, by, all, {}, facts);
    } else {
        for_each_part(by, [&](u64 part) {
            Search search = by.searches[part];
            if (of.taken != nullptr) search.least = NONE_LISTED;
            SearchCounters& counters = by.counters[part];
            const u64 room = search.units / LISTED_SHARE;
            const Listing listing{list_of(by, search), room, &counters.listed, aside, put};
            accumulate_part(sums, by, search, listing, facts);
            if (search.least == NONE_LISTED) return;
            listing.flush(true);
            if (!is_last_block(&counters.arrived, gridDim.x) || threadIdx.x != 0) return;
            const u64 listed = load_relaxed(&counters.listed);
            by.searches[part].lists = listed <= room && listed >= search.wanted;
            store_relaxed(&counters.arrived, 0);
        });
    }
    if (greatest == nullptr) return;
    raise_to(greatest, facts.greatest);
    store_sum_of_block(facts.gradient, squares);
    store_sum_of_block(facts.left, left);
}

// Guesses, by a sample of each part whose search asks for it, the magnitude that slightly more units reach
// than are wanted; only its upper bits.
template <class T>
ZENC_DEVICE void guess_least(const Adding& of, const Selecting& by) {
    ZENC_SHARED(u32, reached, 31);
    constexpr u32 EACH = SAMPLED / THREADS, UNKNOWN_BITS = 14;
    const Accumulating<T> sums{of};
    for_each_part(by, [&](u64 part) {
        Search& search = by.searches[part];
        if (search.of_sample == 0) return;
        u32 mine[EACH], least = 0;
        if (threadIdx.x < 31) reached[threadIdx.x] = 0;
#pragma unroll
        for (u32 k = 0; k < EACH; ++k)
            mine[k] = sums.magnitude(
                unit_of(by, search, drawn_unit(part, k * THREADS + threadIdx.x, search.units, SAMPLED)));
        __syncthreads();
        for (u32 bit = 31; bit-- > UNKNOWN_BITS;) {
            u32 number = 0;
#pragma unroll
            for (u32 k = 0; k < EACH; ++k) number += mine[k] >= (least | 1U << bit);
            if (number != 0) atomicAdd(reached + bit, number);
            __syncthreads();
            if (reached[bit] >= search.of_sample) least |= 1U << bit;
        }
        __syncthreads();
        if (threadIdx.x == 0) search.least = least == 0 ? 1 : least;  // zeros are many
    });
}

// A sample: the magnitudes of `drawn` values, one from each of as many stretches of the n.
template <class T>
ZENC_DEVICE void draw_sample(const Adding& of, u64 n, u64 drawn, u64 key, float* out) {
    const Accumulating<T> sums{of};
    for (u64 i = thread_of_row(); i < drawn; i += threads_of_row())
        out[i] = float_of(sums.magnitude(drawn_unit(key, i, n, drawn)));
}

template <u32 N, class T>
ZENC_DEVICE u32 greatest_of(const T* values) {
    const auto found = Columns<T, N>::load(values);
    u32 greatest = 0;
#pragma unroll
    for (u32 k = 0; k < N; ++k) raise(greatest, magnitude_of(Type<T>::widen(found.of[k])));
    return greatest;
}

// out [rows] = the greatest magnitude in each row; for rows of one value, that value's.
template <class T>
ZENC_DEVICE void row_magnitudes(const T* values, u64 rows, u64 width, float* out) {
    if (width == 1) {
        for_each_vector<1>(rows, [&](u64 i) { out[i] = float_of(greatest_of<1>(values + i)); });
        return;
    }
    for (u64 row = warp_of_row(); row < rows; row += warps_of_row()) {
        u32 greatest = 0;
        for (u64 i = lane(); i < width; i += WARP) raise(greatest, greatest_of<1>(values + row * width + i));
        greatest = greatest_of_warp(greatest);
        if (lane() == 0) out[row] = float_of(greatest);
    }
}

// *greatest, which is 0 before, becomes the greatest magnitude.
template <class T>
ZENC_DEVICE void raise_greatest(const T* values, u64 n, u64* greatest) {
    u32 most = 0;
    for_all_values<4>(
        n, in_vectors(values), [&](u64 i) { raise(most, greatest_of<4>(values + i)); },
        [&](u64 i) { raise(most, greatest_of<1>(values + i)); });
    raise_to(greatest, most);
}

}  // namespace zenc
