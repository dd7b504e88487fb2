// Values as multiples of a step: scales of blocks, rounding to nearest and at random, and back.
//
// A step has so few significant bits that all of its multiples are exact in float32: what is decoded is
// encoded to the same bytes again, and what is lost is known exactly. Divisions are those of IEEE 754, and
// so the same bits on every target.
#pragma once

#include "zenc/compress/magnitude.h"
#include "zenc/compress/philox.h"

namespace zenc {

// The bits that `number` takes.
ZENC_HD inline u32 bit_length(u32 number) {
    u32 bits = 0;
    for (; number != 0; number >>= 1) ++bits;
    return bits;
}

// The least step, nearly, of which `levels` reach the magnitude `greatest`; NaN if that is not finite.
ZENC_HD inline float step_of(float greatest, u32 levels) {
    if (magnitude_of(greatest) >= INFINITE) return not_a_number();
    const u32 spared = levels == 1 ? 0 : (1U << bit_length(levels)) - 1;
    const u32 exact = bits_of(greatest / static_cast<float>(levels));
    const float step = float_of((exact + spared) & ~spared);
    if (magnitude_of(step * static_cast<float>(levels)) < INFINITE) return step;
    return float_of(exact & ~spared);
}

// The divisor of values, given their step, which is 0 for a block of zeros.
ZENC_HD inline float divisor_of(float step) {
    return step == 0 ? 1.0F : step;
}

// The integer nearest to |quotient| < 2^22, of two the even one: the sum has no bits behind the point.
ZENC_HD inline int nearest(float quotient) {
    return static_cast<int>(bits_of(quotient + 12582912.0F) - 0x4b400000U);
}

ZENC_HD inline int clamp_to(int value, int most) {
    return value > most ? most : value < -most ? -most : value;
}

// A multiple of the step on one side of `quotient` or the other, at random, so that the mean is right.
ZENC_HD inline int random_side(float quotient, u32 word) {
    const float magnitude = float_of(bits_of(quotient) & MAGNITUDE);
    const int below = static_cast<int>(magnitude);
    const float rest = magnitude - static_cast<float>(below);
    const int up = static_cast<int>(word >> 8) < static_cast<int>(rest * 16777216.0F);
    return quotient < 0 ? -(below + up) : below + up;
}

// The number of 16 bits on one side of a value or the other, at random so that the mean is right. Beyond the
// greatest, and where that is none, to nearest.
template <class T>
ZENC_HD inline T random_round(float value, u32 word);

template <>
ZENC_HD inline bf16 random_round(float value, u32 word) {
    const u32 bits = bits_of(value), upper = (bits + (word >> 16)) >> 16;
    const bool fits = (upper & 0x7fff) < 0x7f80 && magnitude_of(value) < INFINITE;
    return {fits ? static_cast<u16>(upper) : Type<bf16>::round(value).bits};
}

// Below 2^-14 numbers are multiples of 2^-24.
template <>
ZENC_HD inline f16 random_round(float value, u32 word) {
    const u32 bits = bits_of(value), magnitude = bits & MAGNITUDE;
    const u32 normal = (magnitude - (112U << 23) + (word >> 19)) >> 13;
    const bool small = magnitude < (113U << 23);
    const u32 half =
        small ? static_cast<u32>(random_side(float_of(small ? magnitude : 0) * 16777216.0F, word)) : normal;
    const bool fits = half < 0x7c00 && magnitude < (143U << 23);
    return {fits ? static_cast<u16>(half | (bits >> 16 & 0x8000)) : Type<f16>::round(value).bits};
}

// The least exponent of a power of two of which `levels` reach the magnitude `greatest`, which is finite.
ZENC_HD inline int exponent_of(float greatest, u32 levels) {
    int exponent = -149;
    double reach = static_cast<double>(levels) * 1.401298464324817e-45;  // 2^-149
    for (; reach < static_cast<double>(greatest); reach *= 2) ++exponent;
    return exponent;
}

// The lowest set bit of a finite value, which is a multiple of it, as the bits of a float32; of 0 INFINITE.
ZENC_HD inline u32 lowest_bit(float value) {
    const u32 magnitude = magnitude_of(value);
    const u32 rest = magnitude & (magnitude - 1);
    const u32 lowest = bits_of(float_of(magnitude) - float_of(rest));
    const u32 found = magnitude & 0x007fffff ? lowest : magnitude;
    return magnitude == 0 ? INFINITE : found;
}

constexpr int NOT_FINITE = 0x7fffffff;  // the exponent of values of which some are not

// 2^exponent, for -149 <= exponent <= 127.
ZENC_HD inline float power_of_two(int exponent) {
    const bool normal = exponent >= -126;
    return float_of(normal ? static_cast<u32>(exponent + 127) << 23 : 1U << (exponent + 149));
}

ZENC_HD inline bool is_exponent(int exponent) {
    return exponent == NOT_FINITE || (exponent >= -149 && exponent <= 127);
}

ZENC_HD inline float step_with(int exponent) {
    return is_exponent(exponent) && exponent != NOT_FINITE ? power_of_two(exponent) : not_a_number();
}

}  // namespace zenc
