// Vectors of 512 bits, on processors that move single lanes by a mask (AVX-512 with VBMI2). Whoever includes
// this has a loop for all others: ZENC_LANES says which it is. Both give the same bits.
#pragma once

#include "zenc/bits.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512DQ__) && defined(__AVX512VL__) && \
    defined(__AVX512VBMI2__)
#define ZENC_LANES 1
#include <immintrin.h>
#else
#define ZENC_LANES 0
#endif

namespace zenc {

// Values that are expanded, added and compressed in lanes: as many as fill a vector.
template <class T>
struct Lanes {
    static constexpr bool ARE_THERE = false;
};

#if ZENC_LANES

template <>
struct Lanes<float> {
    static constexpr bool ARE_THERE = true;
    static constexpr u64 NUMBER = 16;
    using Mask = __mmask16;
    using Vector = __m512;

    static Vector zeros() { return _mm512_setzero_ps(); }
    // `to` with the lanes of `mask` replaced by the values at `from`, one after another; no others are read.
    static Vector expand(Vector to, Mask mask, const float* from) {
        return _mm512_mask_expandloadu_ps(to, mask, from);
    }
    // `to`, and a + b in the lanes of `mask`.
    static Vector add(Vector to, Mask mask, Vector a, Vector b) { return _mm512_mask_add_ps(to, mask, a, b); }
    // In registers first: a compressing store takes a hundred cycles on some processors.
    static void compress(Mask mask, Vector x, float* to) {
        const Mask low = static_cast<Mask>(low_mask(population(mask)));
        _mm512_mask_storeu_ps(to, low, _mm512_maskz_compress_ps(mask, x));
    }
};

template <>
struct Lanes<double> {
    static constexpr bool ARE_THERE = true;
    static constexpr u64 NUMBER = 8;
    using Mask = __mmask8;
    using Vector = __m512d;

    static Vector zeros() { return _mm512_setzero_pd(); }
    static Vector expand(Vector to, Mask mask, const double* from) {
        return _mm512_mask_expandloadu_pd(to, mask, from);
    }
    static Vector add(Vector to, Mask mask, Vector a, Vector b) { return _mm512_mask_add_pd(to, mask, a, b); }
    static void compress(Mask mask, Vector x, double* to) {
        const Mask low = static_cast<Mask>(low_mask(population(mask)));
        _mm512_mask_storeu_pd(to, low, _mm512_maskz_compress_pd(mask, x));
    }
};

// Values of so many bytes, as many as fill a vector, moved by a mask. keep: those of `mask` are written one
// after another. spread: those that stand one after another go to the lanes of `mask`, of the lanes `all`.
// Both return how many there are, and touch no others.
template <u64 BYTES>
struct MovedLanes;

template <>
struct MovedLanes<2> {
    static constexpr u64 NUMBER = 32;
    using Mask = __mmask32;

    static u64 keep(const void* from, Mask mask, void* to) {
        const u64 n = population(mask);
        const __m512i kept = _mm512_maskz_compress_epi16(mask, _mm512_maskz_loadu_epi16(mask, from));
        _mm512_mask_storeu_epi16(to, static_cast<Mask>(low_mask(n)), kept);
        return n;
    }
    static u64 spread(const void* from, Mask mask, Mask all, void* to) {
        const u64 n = population(mask);
        const __m512i next = _mm512_maskz_loadu_epi16(static_cast<Mask>(low_mask(n)), from);
        _mm512_mask_storeu_epi16(to, all, _mm512_maskz_expand_epi16(mask, next));
        return n;
    }
};

template <>
struct MovedLanes<4> {
    static constexpr u64 NUMBER = 16;
    using Mask = __mmask16;

    static u64 keep(const void* from, Mask mask, void* to) {
        const u64 n = population(mask);
        const __m512i kept = _mm512_maskz_compress_epi32(mask, _mm512_maskz_loadu_epi32(mask, from));
        _mm512_mask_storeu_epi32(to, static_cast<Mask>(low_mask(n)), kept);
        return n;
    }
    static u64 spread(const void* from, Mask mask, Mask all, void* to) {
        const u64 n = population(mask);
        const __m512i next = _mm512_maskz_loadu_epi32(static_cast<Mask>(low_mask(n)), from);
        _mm512_mask_storeu_epi32(to, all, _mm512_maskz_expand_epi32(mask, next));
        return n;
    }
};

template <>
struct MovedLanes<8> {
    static constexpr u64 NUMBER = 8;
    using Mask = __mmask8;

    static u64 keep(const void* from, Mask mask, void* to) {
        const u64 n = population(mask);
        const __m512i kept = _mm512_maskz_compress_epi64(mask, _mm512_maskz_loadu_epi64(mask, from));
        _mm512_mask_storeu_epi64(to, static_cast<Mask>(low_mask(n)), kept);
        return n;
    }
    static u64 spread(const void* from, Mask mask, Mask all, void* to) {
        const u64 n = population(mask);
        const __m512i next = _mm512_maskz_loadu_epi64(static_cast<Mask>(low_mask(n)), from);
        _mm512_mask_storeu_epi64(to, all, _mm512_maskz_expand_epi64(mask, next));
        return n;
    }
};

// The numbers of the set bits of a word, one byte each, ascending.
inline __m512i bit_numbers(u64 word) {
    alignas(64) static constexpr u8 ALL[64] = {
        0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21,
        22, 23, 24, 25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43,
        44, 45, 46, 47, 48, 49, 50, 51, 52, 53, 54, 55, 56, 57, 58, 59, 60, 61, 62, 63};
    return _mm512_maskz_compress_epi8(word, _mm512_load_si512(ALL));
}

// to[i] = base + numbers[i], for as many as fill a vector. All lanes are in the masks: the intrinsics without
// one begin with a vector that GCC 12 takes for uninitialised.
template <class Index>
inline void add_numbers(const void* numbers, u64 base, Index* to) {
    __m128i bytes;
    __builtin_memcpy(&bytes, numbers, sizeof bytes);
    if constexpr (sizeof(Index) == 8) {
        const __m512i wide = _mm512_maskz_cvtepu8_epi64(0xff, bytes);
        _mm512_storeu_si512(to, _mm512_add_epi64(_mm512_set1_epi64(static_cast<i64>(base)), wide));
    } else {
        const __m512i wide = _mm512_maskz_cvtepu8_epi32(0xffff, bytes);
        _mm512_storeu_si512(to, _mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(base)), wide));
    }
}

// append_bits of `count` bits; most words have so few that one vector takes them.
template <class Index>
inline void append_lanes(u64 word, u64 count, u64 base, Index* out) {
    constexpr u64 NUMBER = 64 / sizeof(Index);
    const __m512i numbers = bit_numbers(word);
    add_numbers(&numbers, base, out);
    if (count <= NUMBER) return;
    u8 bytes[64 + 16];
    _mm512_storeu_si512(bytes, numbers);
    for (u64 i = NUMBER; i < count; i += NUMBER) add_numbers(bytes + i, base, out + i);
}

// Bit i: values[i] & mask != 0, for as many as fill a vector.
inline u64 test_lanes(const u8* values, u8 mask) {
    return _mm512_test_epi8_mask(_mm512_loadu_si512(values), _mm512_set1_epi8(static_cast<char>(mask)));
}

inline u64 test_lanes(const u16* values, u16 mask) {
    return _mm512_test_epi16_mask(_mm512_loadu_si512(values), _mm512_set1_epi16(static_cast<short>(mask)));
}

inline u64 test_lanes(const u32* values, u32 mask) {
    return _mm512_test_epi32_mask(_mm512_loadu_si512(values), _mm512_set1_epi32(static_cast<int>(mask)));
}

inline u64 test_lanes(const u64* values, u64 mask) {
    return _mm512_test_epi64_mask(_mm512_loadu_si512(values), _mm512_set1_epi64(static_cast<i64>(mask)));
}

#endif

}  // namespace zenc
