// A rank's contribution before selection: its gradient and what it has kept, in one pass; with the histogram
// of its magnitudes.
#pragma once

#include <cstring>

#include "zenc/compress/magnitude.h"

namespace zenc {

constexpr u64 STRETCH = 512;  // values that are worked on together, and stay in the first cache

using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));
using Doubles = double __attribute__((vector_size(64)));

template <class T>
inline void widen_all(const T* from, u64 n, float* to) {
    for (u64 i = 0; i < n; ++i) to[i] = Type<T>::widen(from[i]);
}

inline void widen_all(const float* from, u64 n, float* to) {
    std::memcpy(to, from, n * sizeof(float));
}

// The sum of squares of what comes in pieces of up to STRETCH values: eight sums side by side, then those.
class Squares {
public:
    void add(const float* values, u64 n) {
        u64 i = 0;
        for (; i + 8 <= n; i += 8) {
            const Doubles wide =
                __builtin_convertvector(*reinterpret_cast<const Floats*>(values + i), Doubles);
            lanes_ += wide * wide;
        }
        for (; i < n; ++i) rest_ += static_cast<double>(values[i]) * values[i];
    }

    double sum() const {
        double all = rest_;
        for (int i = 0; i < 8; ++i) all += lanes_[i];
        return all;
    }

private:
    Doubles lanes_ = {};
    double rest_ = 0;
};

inline u32 greatest_magnitude(const float* values, u64 n) {
    u32 greatest = 0;
    for (u64 i = 0; i < n; ++i) {
        const u32 magnitude = magnitude_of(values[i]);
        greatest = magnitude > greatest ? magnitude : greatest;
    }
    return greatest;
}

// Counts in BINS bins. Several of them side by side: the next value often belongs to the same bin.
class Histogram {
public:
    void add(const float* values, u64 n) {
        u64 i = 0;
        for (; i + SIDES <= n; i += SIDES)
            for (u64 side = 0; side < SIDES; ++side) ++counts_[side][bin(values[i + side])];
        for (; i < n; ++i) ++counts_[0][bin(values[i])];
    }

    void add_to(u64* counts) const {
        for (u32 i = 0; i < BINS; ++i)
            for (u64 side = 0; side < SIDES; ++side) counts[i] += counts_[side][i];
    }

    // Before any of them has more values than 32 bits count.
    static constexpr u64 MOST = 1ULL << 31;

private:
    static constexpr u64 SIDES = 4;

    static u32 bin(float value) { return magnitude_of(value) >> BIN_SHIFT; }

    u32 counts_[SIDES][BINS] = {};
};

struct Accumulated {
    double squares;  // of the gradient
    i64 greatest;    // magnitude of what there is to contribute
};

// out = residual + gradient; with momentum `m` the velocity becomes m * velocity + gradient, and that is
// added. Without a residual or velocity these are zero. Histograms of fewer than Histogram::MOST values.
template <class T>
inline Accumulated accumulate(const T* gradient, u64 n, const float* residual, float* out,
                              const float* velocity, float m, float* velocity_out, u64* histogram) {
    Squares squares;
    Histogram counts;
    u32 greatest = 0;
    float added[STRETCH];
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        widen_all(gradient + first, length, added);
        squares.add(added, length);
        if (velocity_out) {
            if (velocity)
                for (u64 i = 0; i < length; ++i) added[i] = m * velocity[first + i] + added[i];
            std::memcpy(velocity_out + first, added, length * sizeof(float));
        }
        if (residual)
            for (u64 i = 0; i < length; ++i) added[i] = residual[first + i] + added[i];
        std::memcpy(out + first, added, length * sizeof(float));
        const u32 most = greatest_magnitude(added, length);
        greatest = most > greatest ? most : greatest;
        if (histogram) counts.add(added, length);
    }
    if (histogram) counts.add_to(histogram);
    return {squares.sum(), greatest};
}

// The magnitude of each row is that of its greatest value; they are written as float32 without sign.
inline void row_magnitudes(const float* values, u64 rows, u64 width, float* out) {
    for (u64 row = 0; row < rows; ++row) out[row] = float_of(greatest_magnitude(values + row * width, width));
}

template <class T>
inline bool all_finite(const T* values, u64 n) {
    float wide[STRETCH];
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        widen_all(values + first, length, wide);
        if (greatest_magnitude(wide, length) >= INFINITE) return false;
    }
    return true;
}

}  // namespace zenc
