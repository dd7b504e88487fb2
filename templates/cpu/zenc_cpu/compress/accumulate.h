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

// A sum of squares: 32 sums side by side, then those.
class Squares {
public:
    void add(const float* values, u64 n) {
        u64 i = 0;
        for (; i + 32 <= n; i += 32) {
            add_to(first_, values + i);
            add_to(second_, values + i + 8);
            add_to(third_, values + i + 16);
            add_to(fourth_, values + i + 24);
        }
        for (; i < n; ++i) rest_ += static_cast<double>(values[i]) * values[i];
    }

    double sum() const {
        double all = rest_;
        const Doubles lanes = (first_ + second_) + (third_ + fourth_);
        for (int i = 0; i < 8; ++i) all += lanes[i];
        return all;
    }

private:
    static void add_to(Doubles& sums, const float* values) {
        const Doubles wide = __builtin_convertvector(*reinterpret_cast<const Floats*>(values), Doubles);
        sums += wide * wide;
    }

    Doubles first_ = {}, second_ = {}, third_ = {}, fourth_ = {};
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

struct Accumulated {
    double squares;  // of the gradient
    i64 greatest;    // magnitude of what there is to contribute
};

// `values` as float32: where they are, if they are float32, else written to `wide`.
template <class T>
inline const float* as_floats(const T* values, u64 n, float* wide) {
    if constexpr (sizeof(T) == sizeof(float)) return values;
    widen_all(values, n, wide);
    return wide;
}

// out = a * b + c; without `b` it is c. Here `out` may be b or c.
inline void multiply_add(float a, const float* b, const float* c, u64 n, float* out) {
    float sums[STRETCH];
    if (b == nullptr) return static_cast<void>(std::memmove(out, c, n * sizeof(float)));
    for (u64 i = 0; i < n; ++i) sums[i] = a * b[i] + c[i];
    std::memcpy(out, sums, n * sizeof(float));
}

// out = residual + gradient; with `velocity_out` that becomes m * velocity + gradient, and is added instead.
// Without a residual or velocity these are zero.
template <class T>
inline Accumulated accumulate(const T* gradient, u64 n, const float* residual, float* out,
                              const float* velocity, float m, float* velocity_out) {
    Squares squares;
    u32 greatest = 0;
    float wide[STRETCH];
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        const float* added = as_floats(gradient + first, length, wide);
        squares.add(added, length);
        if (velocity_out) {
            multiply_add(m, velocity ? velocity + first : nullptr, added, length, velocity_out + first);
            added = velocity_out + first;
        }
        multiply_add(1, residual ? residual + first : nullptr, added, length, out + first);
        const u32 most = greatest_magnitude(out + first, length);
        greatest = most > greatest ? most : greatest;
    }
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
