// Factors of low rank of a matrix (PowerSGD, NeurIPS 2019): the matrix in an orthonormal basis, and back.
//
// Sums are made in the same order on every processor, so that ranks with equal vectors have equal bases.
#pragma once

#include "zenc/compress/sketch.h"
#include "zenc_cpu/compress/accumulate.h"
#include "zenc_cpu/compress/random.h"

namespace zenc {

constexpr u64 LANES = 16;
constexpr u64 MOST_DRAWS = 8;
constexpr double DEPENDENT = 1e-5;  // of a unit vector: what less is left of is rounding

inline double dot(const float* x, const float* y, u64 n) {
    double lanes[LANES] = {}, sum = 0;
    for (u64 i = 0; i + LANES <= n; i += LANES)
        for (u64 lane = 0; lane < LANES; ++lane)
            lanes[lane] += static_cast<double>(x[i + lane]) * y[i + lane];
    for (u64 i = n / LANES * LANES; i < n; ++i) lanes[i % LANES] += static_cast<double>(x[i]) * y[i];
    for (const double lane : lanes) sum += lane;
    return sum;
}

template <class Factor>
inline void add_scaled(Factor factor, const float* x, u64 n, float* out) {
    for (u64 i = 0; i < n; ++i) out[i] = static_cast<float>(out[i] + factor * x[i]);
}

// Makes a vector that is not 0 one of length 1. Returns its length.
inline double normalise(float* vector, u64 n) {
    const double length = square_root(dot(vector, vector, n));
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
            add_scaled(-dot(vectors + other * n, own, n), vectors + other * n, n, own);
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

// A tensor of a call: a matrix of which a factor of rank r is sent, in `basis`, of its rows or of its
// columns; where r is 0, all values are sent.
struct Factored {
    u64 rows, columns, r, of_rows;
    const float* basis;

    u64 values() const { return rows * columns; }
    u64 sent() const { return r == 0 ? values() : r * (of_rows ? rows : columns); }
    // The factors of the product of a basis and what was `sent`.
    const float* left(const float* sent) const { return of_rows ? sent : basis; }
    const float* right(const float* sent) const { return of_rows ? basis : sent; }
};

constexpr u64 VECTORS_OF_ROW = 4;
using Wide = float __attribute__((vector_size(64), aligned(4), may_alias));

// row [n] += sign * the sum of left[k * stride] * right [r, n], in the order of k.
inline void add_products(const float* left, u64 stride, const float* right, u64 r, u64 n, float sign,
                         float* row) {
    constexpr u64 LENGTH = sizeof(Wide) / sizeof(float), BLOCK = VECTORS_OF_ROW * LENGTH;
    u64 i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        Wide sums[VECTORS_OF_ROW];
#pragma GCC unroll 8  // or the sums are in memory
        for (u64 v = 0; v < VECTORS_OF_ROW; ++v)
            sums[v] = *reinterpret_cast<const Wide*>(row + i + v * LENGTH);
        for (u64 k = 0; k < r; ++k) {
            const float factor = sign * left[k * stride];
#pragma GCC unroll 8
            for (u64 v = 0; v < VECTORS_OF_ROW; ++v)
                sums[v] += factor * *reinterpret_cast<const Wide*>(right + k * n + i + v * LENGTH);
        }
#pragma GCC unroll 8
        for (u64 v = 0; v < VECTORS_OF_ROW; ++v) *reinterpret_cast<Wide*>(row + i + v * LENGTH) = sums[v];
    }
    for (u64 k = 0; k < r; ++k) add_scaled(sign * left[k * stride], right + k * n + i, n - i, row + i);
}

// matrix [rows, columns] += sign * the product of left [r, rows], transposed, and right [r, columns].
inline void add_product(const float* left, const float* right, u64 r, u64 rows, u64 columns, float sign,
                        float* matrix) {
    for (u64 row = 0; row < rows; ++row)
        add_products(left + row, rows, right, r, columns, sign, matrix + row * columns);
}

// out[k * stride] = x * vectors[k] for each k < DOTS: float32 sums as `dot` makes wider ones, side by side.
template <u64 DOTS>
inline void dots(const float* x, const float* vectors, u64 n, float* out, u64 stride) {
    Wide lanes[DOTS] = {};
    u64 i = 0;
    for (; i + LANES <= n; i += LANES) {
        const Wide here = *reinterpret_cast<const Wide*>(x + i);
#pragma GCC unroll 8  // or the sums are in memory
        for (u64 k = 0; k < DOTS; ++k) lanes[k] += here * *reinterpret_cast<const Wide*>(vectors + k * n + i);
    }
    for (u64 k = 0; k < DOTS; ++k) {
        float sums[LANES], sum = 0;
        std::memcpy(sums, &lanes[k], sizeof sums);
        for (u64 rest = i; rest < n; ++rest) sums[rest % LANES] += x[rest] * vectors[k * n + rest];
        for (const float lane : sums) sum += lane;
        out[k * stride] = sum;
    }
}

// The coordinates of a row in a basis [r, n], of which the first is out[0], the second out[stride].
inline void project(const float* row, const float* basis, u64 r, u64 n, float* out, u64 stride) {
    u64 k = 0;
    for (; k + 4 <= r; k += 4) dots<4>(row, basis + k * n, n, out + k * stride, stride);
    for (; k < r; ++k) dots<1>(row, basis + k * n, n, out + k * stride, stride);
}

struct FactorsTaken {
    Accumulated all;
    double left;  // squares of what is left
};

// left [all values] becomes residual + gradient, of which `sent` becomes what `tensors`, one after another,
// send; its expansion is taken from `left`.
template <class T>
inline FactorsTaken take_factors(const Factored* tensors, u64 n, T* gradient, const float* residual,
                                 float* left, float* sent) {
    constexpr u64 TOGETHER = 8;  // rows that have a part in columns at once
    Accumulation sums;
    Squares rest;
    for (const Factored* of = tensors; of < tensors + n; sent += of->sent(), ++of) {
        const u64 columns = of->columns;
        if (!of->of_rows) std::memset(sent, 0, of->sent() * sizeof(float));
        for (u64 row = 0; row < of->rows; ++row, left += columns) {
            for (u64 first = 0; first < columns; first += STRETCH) {
                const u64 length = columns - first < STRETCH ? columns - first : STRETCH;
                sums.add(Contribution<T>{gradient, length, residual, nullptr, nullptr, 0, nullptr},
                         left + first);
                gradient += length;
                if (residual != nullptr) residual += length;
            }
            if (of->r == 0) {
                std::memcpy(sent + row * columns, left, columns * sizeof(float));
                add_scaled(-1.0F, left, columns, left);
            } else if (of->of_rows) {
                project(left, of->basis, of->r, columns, sent + row, of->rows);
                add_products(sent + row, of->rows, of->basis, of->r, columns, -1, left);
            } else if (const u64 rows = row % TOGETHER + 1; rows == TOGETHER || row + 1 == of->rows) {
                const u64 first = row + 1 - rows;
                for (u64 k = 0; k < of->r; ++k)
                    add_products(of->basis + k * of->rows + first, 1, left - (rows - 1) * columns, rows,
                                 columns, 1, sent + k * columns);
            }
            if (of->of_rows) rest.add(left, columns);
        }
        if (of->of_rows) continue;
        float* const matrix = left - of->values();
        add_product(of->basis, sent, of->r, of->rows, columns, -1, matrix);
        rest.add(matrix, of->values());
    }
    return {sums.found(), rest.sum()};
}

// out [all values] = what `sent`, a sum of factors of `tensors`, means, divided by `ranks`. False where that
// is not finite.
inline bool expand_factors(const Factored* tensors, u64 n, const float* sent, float ranks, float* out) {
    bool finite = true;
    for (const Factored* of = tensors; of < tensors + n; sent += of->sent(), ++of) {
        for (u64 row = 0; row < of->rows; ++row, out += of->columns) {
            std::memset(out, 0, of->columns * sizeof(float));
            if (of->r == 0)
                add_scaled(1.0F, sent + row * of->columns, of->columns, out);
            else
                add_products(of->left(sent) + row, of->rows, of->right(sent), of->r, of->columns, 1, out);
            finite = all_finite(out, of->columns) && finite;
            for (u64 i = 0; i < of->columns; ++i) out[i] /= ranks;
        }
    }
    return finite;
}

}  // namespace zenc
