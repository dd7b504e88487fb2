// A rank's contribution before selection: its gradient and what it has kept, in one pass; with the histogram
// of its magnitudes.
#pragma once

#include <cstring>

#include "zenc/compress/magnitude.h"
#include "zenc_cpu/primitives/lanes.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

constexpr u64 STRETCH = 512;  // values that are worked on together, and stay in the first cache

using Floats = float __attribute__((vector_size(32), aligned(4), may_alias));
using Doubles = double __attribute__((vector_size(64), may_alias));

template <class T>
inline void widen_all(const T* from, u64 n, float* to) {
    for (u64 i = 0; i < n; ++i) to[i] = Type<T>::widen(from[i]);
}

inline void widen_all(const float* from, u64 n, float* to) {
    std::memcpy(to, from, n * sizeof(float));
}

// sums += eight values, or their squares.
template <bool SQUARED>
inline void add_wide(Doubles& sums, const float* values) {
#if ZENC_LANES
    const Doubles wide = _mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(values));  // GCC makes two of the other
#else
    const Doubles wide = __builtin_convertvector(*reinterpret_cast<const Floats*>(values), Doubles);
#endif
    sums += SQUARED ? wide * wide : wide;
}

// A sum of squares: 32 sums side by side, then those.
class Squares {
public:
    void add(const float* values, u64 n) {
        Doubles a = first_, b = second_, c = third_, d = fourth_;
        u64 i = 0;
        for (; i + 32 <= n; i += 32) {
            add_wide<true>(a, values + i);
            add_wide<true>(b, values + i + 8);
            add_wide<true>(c, values + i + 16);
            add_wide<true>(d, values + i + 24);
        }
        first_ = a, second_ = b, third_ = c, fourth_ = d;
        for (; i < n; ++i) rest_ += static_cast<double>(values[i]) * values[i];
    }

    double sum() const {
        double all = rest_;
        const Doubles lanes = (first_ + second_) + (third_ + fourth_);
        for (int i = 0; i < 8; ++i) all += lanes[i];
        return all;
    }

private:
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

// The contribution of n values: residual + gradient, written to `left`; with `velocity_out`, that becomes m *
// velocity + gradient and is added in place of the gradient. A missing residual or velocity is zero.
template <class T>
struct Contribution {
    T* gradient;
    u64 n;
    const float* residual;
    float* left;
    const float* velocity;
    float m;
    float* velocity_out;

    Contribution part(u64 first, u64 length) const {
        return {gradient + first,       length, moved(residual, first),    left + first,
                moved(velocity, first), m,      moved(velocity_out, first)};
    }

    // The value that will be left of a unit before any is taken.
    float total(u64 i) const {
        float added = Type<T>::widen(gradient[i]);
        if (velocity_out && velocity) added = m * velocity[i] + added;
        return residual ? residual[i] + added : added;
    }

    template <class Values>
    static Values* moved(Values* values, u64 first) {
        return values ? values + first : nullptr;
    }
};

// Sums that go over a contribution, stretch by stretch.
class Accumulation {
public:
    // Adds at most STRETCH values; `out` is apart from them.
    template <class T>
    void add(const Contribution<T>& of, float* out) {
        float wide[STRETCH];
        const float* added = as_floats(of.gradient, of.n, wide);
        squares_.add(added, of.n);
        if (of.velocity_out) {
            multiply_add(of.m, of.velocity, added, of.n, of.velocity_out);
            added = of.velocity_out;
        }
        multiply_add(1, of.residual, added, of.n, out);
        const u32 most = greatest_magnitude(out, of.n);
        greatest_ = most > greatest_ ? most : greatest_;
    }

    Accumulated found() const { return {squares_.sum(), greatest_}; }

private:
    Squares squares_;
    u32 greatest_ = 0;
};

// visit(part, totals, first) for each stretch of a contribution, once its totals are made. They are written
// afterwards: past the caches where they are many, unless they are read here.
template <class T, class Visit>
inline Accumulated accumulate_stretches(const Contribution<T>& of, Visit visit) {
    float* const out = of.left;
    const bool reads_out = out == of.residual || static_cast<const void*>(out) == of.gradient;
    const RowCopy copy(out, reads_out ? 0 : of.n * sizeof(float), STRETCH * sizeof(float));
    Accumulation sums;
    alignas(LINE_BYTES) float totals[STRETCH];
    for (u64 first = 0; first < of.n; first += STRETCH) {
        const Contribution<T> here = of.part(first, of.n - first < STRETCH ? of.n - first : STRETCH);
        sums.add(here, totals);
        visit(here, totals, first);
        if (here.n == STRETCH)
            copy.row(totals, STRETCH, out + first);
        else
            std::memcpy(out + first, totals, here.n * sizeof(float));
    }
    copy.finish();
    return sums.found();
}

template <class T>
inline Accumulated accumulate(const Contribution<T>& of) {
    return accumulate_stretches(of, [](const Contribution<T>&, float*, u64) {});
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
        if (greatest_magnitude(as_floats(values + first, length, wide), length) >= INFINITE) return false;
    }
    return true;
}

}  // namespace zenc
