// Segments that have all slots, as dense phases have them, where slots are units: their values are a range of
// the tensor, and they need neither a bitmap nor ranks.
#pragma once

#include "zenc_cuda/merge.h"

namespace zenc {

// Each -0 of N values becomes +0.
template <u32 N, class Bits>
ZENC_DEVICE void clear_signs(Bits* bits) {
    const auto found = Columns<Bits, N>::load(bits);
#pragma unroll
    for (u32 k = 0; k < N; ++k)
        if (found.of[k] != 0 && magnitude_bits(found.of[k]) == 0) bits[k] = 0;
}

// Each -0 of tensor [n] becomes +0: what is -0 is absent, and absent slots of a dense segment are +0.
template <class T>
ZENC_DEVICE void clear_signs_of_zeros(T* tensor, u64 n) {
    auto* const bits = reinterpret_cast<typename Arithmetic<T>::Bits*>(tensor);
    constexpr u32 N = sizeof(uint4) / sizeof(T);
    for_all_values<N>(
        n, in_vectors(tensor), [&](u64 i) { clear_signs<N>(bits + i); },
        [&](u64 i) { clear_signs<1>(bits + i); });
}

// The values of segments of parts that are ranges of the tensor, each divided by `divisor`: zeros are +0, or
// -0 if it `marks` what is absent.
template <class T, class Mapping>
ZENC_DEVICE void take_ranges(const Geometry<Mapping>& geometry, const Segment* segments, u64 n,
                             const T* tensor, i64 dtype, i64 divisor, bool marks) {
    const Divided<T> divided(dtype, divisor);
    using Bits = typename Arithmetic<T>::Bits;
    const Bits absent = static_cast<Bits>(static_cast<Bits>(marks) << (8 * sizeof(Bits) - 1));
    for_each_segment(n, [&](u64 i) {
        const T* const from = tensor + geometry.mapping.unit(geometry.first_slot(segments[i].part));
        T* const to = static_cast<T*>(segments[i].values);
        for_each_vector<1>(segments[i].slots, [&](u64 slot) {
            const T value = from[slot];
            const bool zero = magnitude_bits(__builtin_bit_cast(Bits, value)) == 0;
            to[slot] = zero ? __builtin_bit_cast(T, absent) : divided(value);
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
    made.store(out + first);
}

// The values of targets[i], all slots: the sum of its pieces, which have all slots too.
template <class T>
ZENC_DEVICE void sum_ranges(const Segment* targets, u64 n, const Pieces* of, const Segment* pieces, u64 width,
                            i64 dtype) {
    constexpr u32 N = sizeof(uint4) / sizeof(T);
    for_each_segment(n, [&](u64 i) {
        const PiecesOf<T> mine{pieces + of[i].first, of[i].number, 1, Arithmetic<T>(dtype)};
        T* const out = static_cast<T*>(targets[i].values);
        u64 together = address_bits(out);
        for (u64 k = 0; k < mine.number; ++k) together |= address_bits(mine.pieces[k].values);
        for_all_values<N>(
            targets[i].slots * width, together % sizeof(uint4) == 0,
            [&](u64 at) { sum_vector<N>(mine, at, out); }, [&](u64 at) { sum_vector<1>(mine, at, out); });
    });
}

}  // namespace zenc
