// Element types: how values are stored, how they are added, and what counts as zero.
//
// 16-bit values are added in float and rounded to nearest even once per sum. The conversions are integer
// arithmetic without branches: they vectorise, and they give the same bits on every processor. Which NaN an
// addition makes differs between them: what is computed is one NaN alone, quiet and positive, and what is
// copied keeps its bits.
#pragma once

#include "zenc/config.h"

namespace zenc {

ZENC_HD inline float float_of(u32 bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    float value;
    __builtin_memcpy(&value, &bits, 4);
    return value;
#endif
}

ZENC_HD inline u32 bits_of(float value) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(value);
#else
    u32 bits;
    __builtin_memcpy(&bits, &value, 4);
    return bits;
#endif
}

ZENC_HD inline float not_a_number() {
    return float_of(0x7fc00000);
}

ZENC_HD inline double wide_not_a_number() {
#if defined(__CUDA_ARCH__)
    return __longlong_as_double(0x7ff8000000000000);
#else
    const u64 bits = 0x7ff8000000000000;
    double value;
    __builtin_memcpy(&value, &bits, 8);
    return value;
#endif
}

// A number as it is, and the one NaN for all others.
ZENC_HD inline float canonical(float value) {
    return value == value ? value : not_a_number();
}

ZENC_HD inline double canonical(double value) {
    return value == value ? value : wide_not_a_number();
}

struct f16 {
    u16 bits;
};

struct bf16 {
    u16 bits;
};

// A stored type: `Bits` has its size, `Sum` is the type that sums of it are made in, and `round` what is
// stored of one.
template <class T>
struct Type;

template <>
struct Type<float> {
    using Bits = u32;
    using Sum = float;
    ZENC_HD static Sum widen(float value) { return value; }
    ZENC_HD static float round(Sum value) { return canonical(value); }
};

template <>
struct Type<double> {
    using Bits = u64;
    using Sum = double;
    ZENC_HD static Sum widen(double value) { return value; }
    ZENC_HD static double round(Sum value) { return canonical(value); }
};

template <>
struct Type<bf16> {
    using Bits = u16;
    using Sum = float;

    ZENC_HD static Sum widen(bf16 value) { return float_of(static_cast<u32>(value.bits) << 16); }

    ZENC_HD static bf16 round(Sum value) {
        const u32 bits = bits_of(value);
        const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        return {static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? 0x7fc0 : rounded)};
    }
};

// After Giesen's float_to_half_fast3_rtne and half_to_float (gist.github.com/rygorous/2156668), with selects.
template <>
struct Type<f16> {
    using Bits = u16;
    using Sum = float;

    ZENC_HD static Sum widen(f16 value) {
        const u32 magnitude = (static_cast<u32>(value.bits) & 0x7fff) << 13;
        const u32 exponent = magnitude & 0x0f800000;
        const u32 normal = magnitude + (112U << 23);
        const u32 special = magnitude + (224U << 23);
        // A subnormal half is a normal float: let the adder normalise it.
        const u32 subnormal = bits_of(float_of(magnitude + (113U << 23)) - float_of(113U << 23));
        const u32 quiet = special | (static_cast<u32>((magnitude & 0x007fffff) != 0) << 22);
        const u32 wide = exponent == 0 ? subnormal : exponent == 0x0f800000 ? quiet : normal;
        return float_of(wide | (static_cast<u32>(value.bits) & 0x8000) << 16);
    }

    ZENC_HD static f16 round(Sum value) {
        const u32 bits = bits_of(value);
        const u32 magnitude = bits & 0x7fffffff;
        const u32 normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
        const u32 subnormal = bits_of(float_of(magnitude) + float_of(126U << 23)) - (126U << 23);
        const u32 small = magnitude < (113U << 23) ? subnormal : normal;
        const u32 half = (magnitude >= (143U << 23) ? 0x7c00 : small) | ((bits >> 16) & 0x8000);
        return {static_cast<u16>(magnitude > 0x7f800000 ? 0x7e00 : half)};
    }
};

// The bits of a value without its sign: 0 for +0 and -0 only.
template <class Bits>
ZENC_HD inline Bits magnitude_bits(Bits bits) {
    return static_cast<Bits>(bits << 1);
}

}  // namespace zenc
