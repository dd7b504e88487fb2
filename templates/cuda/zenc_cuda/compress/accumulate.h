// A rank's contribution before selection: its gradient and what it has kept, in one pass; with the first
// digit of the searches for the greatest of it.
#pragma once

#include "zenc_cuda/compress/search.h"

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

    // Value i is written, and the square of the gradient added.
    ZENC_DEVICE float operator()(u64 i, double& squares) const {
        float added = Type<T>::widen(gradient[i]);
        squares += static_cast<double>(added) * added;
        if (velocity_out != nullptr) {
            if (velocity != nullptr) added = factor * velocity[i] + added;
            velocity_out[i] = added;
        }
        return out[i] = residual == nullptr ? added : residual[i] + added;
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
    const auto add = [&](u64 i) {
        const u32 magnitude = magnitude_of(sums(i, mine));
        most = magnitude > most ? magnitude : most;
        return magnitude;
    };
    if (by.searches == nullptr)
        for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) add(i);
    else
        for_each_part(by, [&](u64 part) {
            const Search search = by.searches[part];
            clear_bins(bins);
            for (u64 i = thread_of_row(); i < search.units; i += threads_of_row())
                count_magnitude(bins, add(search.first + i));
            add_bins(by, part, 0, bins);
        });
    raise_to(greatest, most);
    store_sum_of_block(mine, squares);
}

// The magnitude of each row, without sign, is that of its greatest value; of rows of one value it is written,
// too.
template <class T>
ZENC_DEVICE void row_magnitudes(const T* values, i64 rows, i64 width, float* out) {
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
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const u32 magnitude = magnitude_of(Type<T>::widen(values[i]));
        most = magnitude > most ? magnitude : most;
    }
    raise_to(greatest, most);
}

}  // namespace zenc
