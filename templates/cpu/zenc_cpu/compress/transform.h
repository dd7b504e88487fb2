// Transforms of chunks, by a matrix of the host.
#pragma once

#include "zenc/compress/layout.h"

namespace zenc {

// Writes LANES columns of the products of CHUNKS chunks to values, from own [chunk][CHUNKS].
template <u64 LANES, u64 CHUNKS>
inline void columns(const double (*own)[CHUNKS], u64 chunk, const float* matrix, float* values) {
    double sums[CHUNKS][LANES] = {};
    for (u64 i = 0; i < chunk; ++i) {
        double row[LANES];
        for (u64 lane = 0; lane < LANES; ++lane) row[lane] = matrix[i * chunk + lane];
        for (u64 of = 0; of < CHUNKS; ++of)
            for (u64 lane = 0; lane < LANES; ++lane) sums[of][lane] += own[i][of] * row[lane];
    }
    for (u64 of = 0; of < CHUNKS; ++of)
        for (u64 lane = 0; lane < LANES; ++lane)
            values[of * chunk + lane] = static_cast<float>(sums[of][lane]);
}

// Each `chunk` of values [n], without a rest, becomes its product with matrix [chunk, chunk].
//
// Products of floats are exact as doubles: a fused sum has the same bits. Two chunks share loads.
template <u64 CHUNKS = 2>
inline void transform(float* values, u64 n, u64 chunk, const float* matrix) {
    double own[TRANSFORMED][CHUNKS];
    for (; n >= CHUNKS * chunk; values += CHUNKS * chunk, n -= CHUNKS * chunk) {
        u64 j = 0;
        for (u64 of = 0; of < CHUNKS; ++of)
            for (u64 i = 0; i < chunk; ++i) own[i][of] = values[of * chunk + i];
        for (; j + 16 <= chunk; j += 16) columns<16>(own, chunk, matrix + j, values + j);
        for (; j < chunk; ++j) columns<1>(own, chunk, matrix + j, values + j);
    }
    if (n > 0) transform<1>(values, n, chunk, matrix);
}

}  // namespace zenc
