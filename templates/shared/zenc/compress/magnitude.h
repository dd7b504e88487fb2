// Magnitudes as integers: the bits of a float32 without its sign, which are in the order of magnitudes.
// Infinity is above all finite ones, and NaN above infinity.
#pragma once

#include "zenc/values.h"

namespace zenc {

constexpr u32 MAGNITUDE = 0x7fffffff;
constexpr u32 INFINITE = 0x7f800000;  // finite magnitudes are below it

// Bins of a histogram: 8 to an octave, by the upper 11 bits of a magnitude.
constexpr u32 BIN_SHIFT = 20;
constexpr u32 BINS = 1U << (31 - BIN_SHIFT);

ZENC_HD inline u32 magnitude_of(float value) {
    return bits_of(value) & MAGNITUDE;
}

// The units of a selection: all above `magnitude`, and of those that are equal to it the first `equal`.
struct Threshold {
    u32 magnitude;
    u64 equal;
};

// Whether a unit is taken; `before` are the units before it that are equal to the threshold.
ZENC_HD inline bool is_taken(const Threshold& threshold, u32 magnitude, u64 before) {
    return magnitude > threshold.magnitude || (magnitude == threshold.magnitude && before < threshold.equal);
}

}  // namespace zenc
