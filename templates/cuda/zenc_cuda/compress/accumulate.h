// A rank's contribution before selection: its gradient and what it has kept, in one pass; with the first
// digit of the searches for the greatest of it.
#pragma once

#include "zenc_cuda/compress/search.h"
#include "zenc_cuda/vectors.h"

namespace zenc {

// Values that are added together, of the n from `first` on.
template <class T>
struct Accumulating {
    const T* gradient;
    const float* residual;  // or null, as `velocity`
    float* out;
    const float* velocity;
    float* velocity_out;  // null: there is no momentum
    float factor;

    ZENC_DEVICE bool has_vectors() const {
        return in_vectors(gradient, residual, out, velocity, velocity_out);
    }

    // Values from number i on are written, and the squares of the gradient added. Visits the magnitudes.
    template <u32 N, class Visit>
    ZENC_DEVICE void add(u64 i, double& squares, Visit visit) const {
        const auto from = Columns<T, N>::load(gradient + i);
        Columns<float, N> before{}, momentum{}, sums;
        if (residual != nullptr) before = Columns<float, N>::load(residual + i);
        if (velocity != nullptr) momentum = Columns<float, N>::load(velocity + i);
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            float added = Type<T>::widen(from.of[k]);
            squares += static_cast<double>(added) * added;
            if (velocity != nullptr) added = factor * momentum.of[k] + added;
            momentum.of[k] = added;
            sums.of[k] = residual == nullptr ? added : before.of[k] + added;
            visit(magnitude_of(sums.of[k]));
        }
        if (velocity_out != nullptr) momentum.store(velocity_out + i);
        sums.store(out + i);
    }
};

// out = residual + gradient; with `velocity_out` that becomes m * velocity + gradient, and is added instead.
// The greatest magnitude of it raises *greatest. With searches each part is of values that follow each other,
// and its first digit is found; `order` is null then.
//
// Reads 8 and writes 4 bytes a float32; with momentum reads 12 and writes 8.
template <class T>
ZENC_DEVICE void accumulate(const T* gradient, i64 n, const float* residual, float* out,
                            const float* velocity, i64 m, float* velocity_out, u64* greatest, double* squares,
                            const Selecting& by) {
    ZENC_SHARED(u32, bins, BINS);
    const Accumulating<T> sums{gradient, residual,     out,
                               velocity, velocity_out, float_of(static_cast<u32>(m))};
    double mine = 0;
    u32 most = 0;
    const auto raise = [&](u32 magnitude) { most = magnitude > most ? magnitude : most; };
    const bool whole = sums.has_vectors();
    if (by.searches == nullptr)
        for_all_values<4>(
            static_cast<u64>(n), whole, [&](u64 i) { sums.template add<4>(i, mine, raise); },
            [&](u64 i) { sums.template add<1>(i, mine, raise); });
    else
        for_each_part(by, [&](u64 part) {
            const Search search = by.searches[part];
            const auto count = [&](u32 magnitude) {
                raise(magnitude);
                count_magnitude(bins, magnitude);
            };
            clear_bins(bins);
            for_all_values<4>(
                search.units, whole && search.first % 4 == 0,
                [&](u64 i) { sums.template add<4>(search.first + i, mine, count); },
                [&](u64 i) { sums.template add<1>(search.first + i, mine, count); });
            add_bins(by, part, 0, bins);
        });
    raise_to(greatest, most);
    store_sum_of_block(mine, squares);
}

template <u32 N, class T>
ZENC_DEVICE u32 greatest_of(const T* values) {
    const auto found = Columns<T, N>::load(values);
    u32 greatest = 0;
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        const u32 magnitude = magnitude_of(Type<T>::widen(found.of[k]));
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}

// The magnitude of each row, without sign, is that of its greatest value; of rows of one value it is written,
// too.
template <class T>
ZENC_DEVICE void row_magnitudes(const T* values, i64 rows, i64 width, float* out) {
    if (width == 1) {
        for_each_vector<1>(static_cast<u64>(rows),
                           [&](u64 i) { out[i] = float_of(greatest_of<1>(values + i)); });
        return;
    }
    for (u64 row = warp_of_row(); row < static_cast<u64>(rows); row += warps_of_row()) {
        u32 greatest = 0;
        for (u64 i = lane(); i < static_cast<u64>(width); i += WARP) {
            const u32 magnitude = magnitude_of(Type<T>::widen(values[row * static_cast<u64>(width) + i]));
            greatest = magnitude > greatest ? magnitude : greatest;
        }
        greatest = greatest_of_warp(greatest);
        if (lane() == 0) out[row] = float_of(greatest);
    }
}

// *greatest, which is 0 before, becomes the greatest magnitude.
template <class T>
ZENC_DEVICE void raise_greatest(const T* values, i64 n, u64* greatest) {
    u32 most = 0;
    const auto raise = [&](u32 magnitude) { most = magnitude > most ? magnitude : most; };
    for_all_values<4>(
        static_cast<u64>(n), in_vectors(values), [&](u64 i) { raise(greatest_of<4>(values + i)); },
        [&](u64 i) { raise(greatest_of<1>(values + i)); });
    raise_to(greatest, most);
}

}  // namespace zenc
