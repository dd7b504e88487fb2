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

#if ZENC_LANES

// Values of so many bytes, as many as fill a vector, moved by a mask: loaded and stored without touching the
// lanes that are not in it, and compressed or expanded in registers. A compressing store takes a hundred
// cycles on some processors.
template <u64 BYTES>
struct Lanes;

template <>
struct Lanes<2> {
    using Mask = __mmask32;
    static __m512i load(Mask mask, const void* from) { return _mm512_maskz_loadu_epi16(mask, from); }
    static void store(void* to, Mask mask, __m512i x) { _mm512_mask_storeu_epi16(to, mask, x); }
    static __m512i compress(Mask mask, __m512i x) { return _mm512_maskz_compress_epi16(mask, x); }
    static __m512i expand(__m512i to, Mask mask, const void* from) {
        return _mm512_mask_expandloadu_epi16(to, mask, from);
    }
};

template <>
struct Lanes<4> {
    using Mask = __mmask16;
    static __m512i load(Mask mask, const void* from) { return _mm512_maskz_loadu_epi32(mask, from); }
    static void store(void* to, Mask mask, __m512i x) { _mm512_mask_storeu_epi32(to, mask, x); }
    static __m512i compress(Mask mask, __m512i x) { return _mm512_maskz_compress_epi32(mask, x); }
    static __m512i expand(__m512i to, Mask mask, const void* from) {
        return _mm512_mask_expandloadu_epi32(to, mask, from);
    }
    // Numbers as they are, and one NaN for all NaNs, in the lanes of `mask`.
    static __m512i canonical(__m512i x, Mask mask) {
        const __m512 of = _mm512_castsi512_ps(x);
        const Mask strange = _mm512_mask_cmp_ps_mask(mask, of, of, _CMP_UNORD_Q);
        return _mm512_mask_set1_epi32(x, strange, 0x7fc00000);
    }
    // `to`, and sums of float in the lanes of `mask`.
    static __m512i add(__m512i to, Mask mask, __m512i a, __m512i b) {
        return _mm512_castps_si512(_mm512_mask_add_ps(_mm512_castsi512_ps(to), mask, _mm512_castsi512_ps(a),
                                                      _mm512_castsi512_ps(b)));
    }
};

template <>
struct Lanes<8> {
    using Mask = __mmask8;
    static __m512i load(Mask mask, const void* from) { return _mm512_maskz_loadu_epi64(mask, from); }
    static void store(void* to, Mask mask, __m512i x) { _mm512_mask_storeu_epi64(to, mask, x); }
    static __m512i compress(Mask mask, __m512i x) { return _mm512_maskz_compress_epi64(mask, x); }
    static __m512i expand(__m512i to, Mask mask, const void* from) {
        return _mm512_mask_expandloadu_epi64(to, mask, from);
    }
    static __m512i canonical(__m512i x, Mask mask) {
        const __m512d of = _mm512_castsi512_pd(x);
        const Mask strange = _mm512_mask_cmp_pd_mask(mask, of, of, _CMP_UNORD_Q);
        return _mm512_mask_set1_epi64(x, strange, 0x7ff8000000000000);
    }
    static __m512i add(__m512i to, Mask mask, __m512i a, __m512i b) {
        return _mm512_castpd_si512(_mm512_mask_add_pd(_mm512_castsi512_pd(to), mask, _mm512_castsi512_pd(a),
                                                      _mm512_castsi512_pd(b)));
    }
};

template <class T>
constexpr u64 NUMBER_OF_LANES = 64 / sizeof(T);

template <class T>
using LaneMask = typename Lanes<sizeof(T)>::Mask;

// Values that stand one after another at `from`, in the lanes of `mask`; the others are those of `onto`.
template <class T>
inline __m512i spread_lanes(__m512i onto, LaneMask<T> mask, const T* from) {
    return Lanes<sizeof(T)>::expand(onto, mask, from);
}

// to = the values of the lanes of `mask`, one after another. Returns how many.
template <class T>
inline u64 keep_lanes(LaneMask<T> mask, __m512i values, T* to) {
    using L = Lanes<sizeof(T)>;
    const u64 n = population(mask);
    L::store(to, static_cast<LaneMask<T>>(low_mask(n)), L::compress(mask, values));
    return n;
}

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
