// Values that follow each other, loaded and stored by 16 bytes.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// N values that follow each other, as a lane loads and stores them.
template <class T, u32 N>
struct alignas(N * sizeof(T)) Columns {
    T of[N];

    ZENC_DEVICE static Columns load(const T* from) {
        if constexpr (sizeof(Columns) == sizeof(uint4))
            return __builtin_bit_cast(Columns, load_once(reinterpret_cast<const uint4*>(from)));
        else
            return load_once(reinterpret_cast<const Columns*>(from));
    }

    ZENC_DEVICE void store(T* to) const { *reinterpret_cast<Columns*>(to) = *this; }
};

// Whether arrays, or null, begin where vectors of 16 bytes do.
template <class... Arrays>
ZENC_DEVICE bool in_vectors(const Arrays*... arrays) {
    return (address_bits(arrays) | ...) % sizeof(uint4) == 0;
}

// visit(first) for the numbers below n, N at a time, by all threads of the row.
template <u32 N, class Visit>
ZENC_DEVICE void for_each_vector(u64 n, Visit visit) {
    for (u64 i = thread_of_row() * N; i < n; i += threads_of_row() * N) visit(i);
}

// several(first) for N numbers below n at a time while `whole`, and one(number) for each of the others.
template <u32 N, class Several, class One>
ZENC_DEVICE void for_all_values(u64 n, bool whole, Several several, One one) {
    const u64 vectors = whole ? n / N * N : 0;
    for_each_vector<N>(vectors, several);
    for_each_vector<1>(n - vectors, [&](u64 i) { one(vectors + i); });
}

}  // namespace zenc
