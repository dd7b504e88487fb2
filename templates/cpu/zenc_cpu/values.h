// Element types: how values are stored, how they are added, and what counts as zero.
//
// 16-bit values are added in float and rounded to nearest even once per sum. The conversions are integer
// arithmetic without branches: they vectorise, and they give the same bits on every processor. NaN stays NaN,
// with its payload's upper bits.
#pragma once

#include <cstring>

#include "zenc/config.h"
#include "zenc_cpu/memory.h"

namespace zenc {

inline float float_of(u32 bits) {
    float value;
    std::memcpy(&value, &bits, 4);
    return value;
}

inline u32 bits_of(float value) {
    u32 bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

struct f16 {
    u16 bits;
};

struct bf16 {
    u16 bits;
};

// A stored type: `Bits` has its size, `Sum` is the type that sums of it are made in.
template <class T>
struct Type;

template <>
struct Type<float> {
    using Bits = u32;
    using Sum = float;
    static Sum widen(float value) { return value; }
    static float round(Sum value) { return value; }
};

template <>
struct Type<double> {
    using Bits = u64;
    using Sum = double;
    static Sum widen(double value) { return value; }
    static double round(Sum value) { return value; }
};

template <>
struct Type<bf16> {
    using Bits = u16;
    using Sum = float;

    static Sum widen(bf16 value) { return float_of(static_cast<u32>(value.bits) << 16); }

    static bf16 round(Sum value) {
        const u32 bits = bits_of(value);
        const u32 rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
        const u32 nan = (bits >> 16) | 0x40;  // quiet: the payload's upper bits may all be zero
        return {static_cast<u16>((bits & 0x7fffffff) > 0x7f800000 ? nan : rounded)};
    }
};

// After Giesen's float_to_half_fast3_rtne and half_to_float (gist.github.com/rygorous/2156668), with selects.
template <>
struct Type<f16> {
    using Bits = u16;
    using Sum = float;

    static Sum widen(f16 value) {
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

    static f16 round(Sum value) {
        const u32 bits = bits_of(value);
        const u32 magnitude = bits & 0x7fffffff;
        const u32 normal = (magnitude - (112U << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
        const u32 subnormal = bits_of(float_of(magnitude) + float_of(126U << 23)) - (126U << 23);
        const u32 nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
        const u32 large = magnitude > 0x7f800000 ? nan : 0x7c00;
        const u32 small = magnitude < (113U << 23) ? subnormal : normal;
        const u32 half = magnitude >= (143U << 23) ? large : small;
        return {static_cast<u16>(half | ((bits >> 16) & 0x8000))};
    }
};

// The bits of a value without its sign: 0 for +0 and -0 only.
template <class Bits>
inline Bits magnitude_bits(Bits bits) {
    return static_cast<Bits>(bits << 1);
}

template <class T>
inline void copy_row(const T* from, u64 width, T* to) {
    if (width == 1)
        *to = *from;
    else
        copy_short(to, from, width * sizeof(T));
}

template <class T>
ZENC_SHARED_CODE inline void divide_values(const T* __restrict from, u64 n, typename Type<T>::Sum divisor,
                                           T* __restrict to) {
    for (u64 i = 0; i < n; ++i) to[i] = Type<T>::round(Type<T>::widen(from[i]) / divisor);
}

// to = from / divisor; a divisor of 1 copies the bits.
template <class T>
inline void divide_row(const T* from, u64 width, typename Type<T>::Sum divisor, T* to) {
    if (divisor == 1)
        copy_row(from, width, to);
    else if (width == 1)
        *to = Type<T>::round(Type<T>::widen(*from) / divisor);
    else
        divide_values(from, width, divisor, to);
}

// to = the sum of n rows (n >= 1) in their order, rounded once; DIVIDED: each divided first. One row alone is
// copied.
template <bool DIVIDED, class T>
ZENC_SHARED_CODE inline void sum_rows(const T* const* rows, u64 n, u64 width, typename Type<T>::Sum divisor,
                                      T* __restrict to) {
    using Sum = typename Type<T>::Sum;
    constexpr u64 CHUNK = 64;  // columns whose sums stay in registers
    const auto value = [&](T x) { return DIVIDED ? Type<T>::widen(x) / divisor : Type<T>::widen(x); };
    if (n == 1) return divide_row(rows[0], width, divisor, to);
    for (u64 first = 0; first < width; first += CHUNK) {
        const u64 columns = width - first < CHUNK ? width - first : CHUNK;
        Sum sums[CHUNK];
        for (u64 i = 0; i < columns; ++i) sums[i] = value(rows[0][first + i]);
        for (u64 k = 1; k < n; ++k) {
            const T* const row = rows[k] + first;
            for (u64 i = 0; i < columns; ++i) sums[i] += value(row[i]);
        }
        for (u64 i = 0; i < columns; ++i) to[first + i] = Type<T>::round(sums[i]);
    }
}

}  // namespace zenc
