// Factors of low rank of a matrix (PowerSGD, NeurIPS 2019): the matrix in an orthonormal basis, and back.
//
// Sums are made in the same order on every processor, so that ranks with equal vectors have equal bases.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cpu/compress/random.h"

namespace zenc {

constexpr u64 LANES = 16;
constexpr u64 MOST_DRAWS = 8;
constexpr double DEPENDENT = 1e-5;  // of a unit vector: what less is left of is rounding

template <class Sum>
inline Sum dot(const float* x, const float* y, u64 n) {
    Sum lanes[LANES] = {}, sum = 0;
    for (u64 i = 0; i + LANES <= n; i += LANES)
        for (u64 lane = 0; lane < LANES; ++lane) lanes[lane] += static_cast<Sum>(x[i + lane]) * y[i + lane];
    for (u64 i = n / LANES * LANES; i < n; ++i) lanes[i % LANES] += static_cast<Sum>(x[i]) * y[i];
    for (const Sum lane : lanes) sum += lane;
    return sum;
}

template <class Factor>
inline void add_scaled(Factor factor, const float* x, u64 n, float* out) {
    for (u64 i = 0; i < n; ++i) out[i] = static_cast<float>(out[i] + factor * x[i]);
}

// Makes a vector that is not 0 one of length 1. Returns its length.
inline double normalise(float* vector, u64 n) {
    const double length = square_root(dot<double>(vector, vector, n));
    if (length > 0)
        for (u64 i = 0; i < n; ++i) vector[i] = static_cast<float>(vector[i] / length);
    return length;
}

// Makes vector k of `vectors` [k + 1, n] a unit vector, orthogonal to the others. False where it depends on
// them.
inline bool make_orthonormal(float* vectors, u64 k, u64 n) {
    float* const own = vectors + k * n;
    if (normalise(own, n) == 0) return false;
    for (int pass = 0; pass < 2; ++pass) {  // the second takes off what the first has rounded
        for (u64 other = 0; other < k; ++other)
            add_scaled(-dot<double>(vectors + other * n, own, n), vectors + other * n, n, own);
        if (normalise(own, n) < DEPENDENT) return false;
    }
    return true;
}

// Makes `vectors` [r, n] orthonormal, r <= n, by the modified Gram-Schmidt process; draws those anew that
// depend on others, as where all are 0.
inline void orthonormalise(float* vectors, u64 r, u64 n, u64 key) {
    for (u64 k = 0; k < r; ++k)
        for (u64 draw = 0; !make_orthonormal(vectors, k, n) && draw < MOST_DRAWS; ++draw) {
            const u64 own = mix(key + (k * MOST_DRAWS + draw) * GOLDEN);
            for (u64 i = 0; i < n; ++i)
                vectors[k * n + i] = static_cast<float>(random_word(own, i)) - 2147483648.0F;
        }
}

// The coordinates of `matrix` [rows, columns] in `basis`: of its rows, out [r, rows], if that is [r,
// columns]; of its columns, out [r, columns], if that is [r, rows].
inline void project(const float* matrix, u64 rows, u64 columns, const float* basis, u64 r, bool of_rows,
                    float* out) {
    if (!of_rows) std::memset(out, 0, r * columns * sizeof(float));
    for (u64 row = 0; row < rows; ++row)
        for (u64 k = 0; k < r; ++k)
            if (of_rows)
                out[k * rows + row] = dot<float>(matrix + row * columns, basis + k * columns, columns);
            else
                add_scaled(basis[k * rows + row], matrix + row * columns, columns, out + k * columns);
}

// matrix [rows, columns] += sign * the product of left [r, rows], transposed, and right [r, columns].
inline void add_product(const float* left, const float* right, u64 r, u64 rows, u64 columns, float sign,
                        float* matrix) {
    for (u64 row = 0; row < rows; ++row)
        for (u64 k = 0; k < r; ++k)
            add_scaled(sign * left[k * rows + row], right + k * columns, columns, matrix + row * columns);
}

}  // namespace zenc
