// Transforms of chunks, by a matrix of the host.
#pragma once

#include "zenc/compress/layout.h"

namespace zenc {

// Each `chunk` of values [n], without a rest, becomes its product with matrix [chunk, chunk].
//
// Products of floats are exact as doubles: a fused sum has the same bits.
inline void transform(float* values, u64 n, u64 chunk, const float* matrix) {
    constexpr u64 TOGETHER = 16;
    double own[TRANSFORMED], sums[TOGETHER];
    for (u64 first = 0; first < n; first += chunk) {
        for (u64 i = 0; i < chunk; ++i) own[i] = values[first + i];
        for (u64 j = 0; j < chunk; j += TOGETHER) {
            const u64 count = chunk - j < TOGETHER ? chunk - j : TOGETHER;
            for (double& sum : sums) sum = 0;
            for (u64 i = 0; i < chunk; ++i) {
                const float* const row = matrix + i * chunk + j;
                if (count == TOGETHER)
                    for (u64 lane = 0; lane < TOGETHER; ++lane) sums[lane] += own[i] * row[lane];
                else
                    for (u64 lane = 0; lane < count; ++lane) sums[lane] += own[i] * row[lane];
            }
            for (u64 lane = 0; lane < count; ++lane)
                values[first + j + lane] = static_cast<float>(sums[lane]);
        }
    }
}

}  // namespace zenc
