// Segments that have all slots, as dense phases have them, where slots are units: their values are a range of
// the tensor, and they need neither a bitmap nor ranks.
#pragma once

#include "zenc/geometry.h"
#include "zenc_cuda/merge.h"

namespace zenc {

// visit(first, N or 1) for the numbers below n, by all threads of the row: N that follow each other, or one.
template <u32 N, class Visit>
ZENC_DEVICE void for_each_vector(u64 n, Visit visit) {
    for (u64 i = thread_of_row() * N; i < n; i += threads_of_row() * N) visit(i);
}

// Each -0 of tensor [n] becomes +0: what is -0 is absent, and absent slots of a dense segment are +0.
template <class T>
ZENC_DEVICE void clear_signs_of_zeros(T* tensor, u64 n) {
    using Bits = typename Arithmetic<T>::Bits;
    Bits* const bits = reinterpret_cast<Bits*>(tensor);
    constexpr u32 N = sizeof(uint4) / sizeof(T);
    const u64 head = (sizeof(uint4) - address_bits(tensor) % sizeof(uint4)) % sizeof(uint4) / sizeof(T);
    const auto clear = [&](u64 i) {
        if (bits[i] != 0 && magnitude_bits(bits[i]) == 0) bits[i] = 0;
    };
    const u64 first = head < n ? head : n, whole = (n - first) / N * N;
    for_each_vector<1>(first, clear);
    for_each_vector<1>(n - first - whole, [&](u64 i) { clear(first + whole + i); });
    for_each_vector<N>(whole, [&](u64 at) {
        const auto found = Columns<Bits, N>::load(bits + first + at);
        bool negative = false;
#pragma unroll
        for (u32 k = 0; k < N; ++k) negative |= found.of[k] != 0 && magnitude_bits(found.of[k]) == 0;
        for (u32 k = 0; negative && k < N; ++k) clear(first + at + k);
    });
}

// The values of segments of parts that are ranges of the tensor: +0 for -0, each divided by `divisor`.
template <class T, class Mapping>
ZENC_DEVICE void take_ranges(const Geometry<Mapping>& geometry, const Segment* segments, i64 n,
                             const T* tensor, i64 dtype, i64 divisor) {
    const Arithmetic<T> of(dtype);
    const auto by = static_cast<typename Arithmetic<T>::Sum>(divisor);
    for_each_segment(n, [&](u64 i) {
        const T* const from = tensor + geometry.mapping.unit(geometry.first_slot(segments[i].part));
        T* const to = static_cast<T*>(segments[i].values);
        for_each_vector<1>(segments[i].slots, [&](u64 slot) {
            const T value = from[slot];
            const bool zero = magnitude_bits(__builtin_bit_cast(typename Arithmetic<T>::Bits, value)) == 0;
            to[slot] = zero ? T{} : divisor == 1 ? value : of.round(of.widen(value) / by);
        });
    });
}

// N sums of values from number `first` on, in the order of the pieces.
template <u32 N, class T>
ZENC_DEVICE void sum_vector(const PiecesOf<T>& pieces, u64 first, T* out) {
    Sum<T> sums[N] = {};
#pragma unroll 1
    for (u64 k = 0; k < pieces.number; k += AHEAD) {
        Columns<T, N> loaded[AHEAD];
#pragma unroll
        for (u32 step = 0; step < AHEAD; ++step)
            if (k + step < pieces.number)
                loaded[step] =
                    Columns<T, N>::load(static_cast<const T*>(pieces.pieces[k + step].values) + first);
#pragma unroll
        for (u32 step = 0; step < AHEAD; ++step)
            for (u32 c = 0; c < N && k + step < pieces.number; ++c)
                sums[c].add(pieces.by, loaded[step].of[c], k + step == 0);
    }
    Columns<T, N> made;
#pragma unroll
    for (u32 c = 0; c < N; ++c) made.of[c] = sums[c].of(pieces.by, pieces.number);
    *reinterpret_cast<Columns<T, N>*>(out + first) = made;
}

// The values of targets[i], all slots: the sum of its pieces, which have all slots too.
template <class T>
ZENC_DEVICE void sum_ranges(const Segment* targets, i64 n, const Pieces* of, const Segment* pieces, u64 width,
                            i64 dtype) {
    constexpr u32 N = sizeof(uint4) / sizeof(T);
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> mine{pieces + of[i].first, of[i].number, 1, Arithmetic<T>(dtype)};
        T* const out = static_cast<T*>(targets[i].values);
        const u64 values = targets[i].slots * width;
        u64 together = address_bits(out);
        for (u64 k = 0; k < mine.number; ++k) together |= address_bits(mine.pieces[k].values);
        const u64 in_vectors = together % sizeof(uint4) == 0 ? values / N * N : 0;
        for_each_vector<N>(in_vectors, [&](u64 at) { sum_vector<N>(mine, at, out); });
        for_each_vector<1>(values - in_vectors, [&](u64 at) { sum_vector<1>(mine, in_vectors + at, out); });
    });
}

}  // namespace zenc
