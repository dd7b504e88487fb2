// Random words of many slots: the counters of 32 lanes at a time.
#pragma once

#include "zenc/compress/philox.h"
#include "zenc_cpu/primitives/lanes.h"

namespace zenc {

constexpr u64 COUNTERS = DRAWN_TOGETHER / 4;

#if ZENC_LANES

// The four words of COUNTERS counters from `counter` on, whose upper half is `above`, below 2^32: word i of
// all of them lies at i * stride.

// Eight counters at a time, a word in each 64 bits: products need no shuffling there, and what stands above a
// word does no harm.
inline void random_group(u64 key, u64 counter, u64 above, u32* words, u64 stride) {
    constexpr __mmask8 ALL = 0xff;  // without a mask GCC 12 warns of its own headers
    const __m512i by_a = _mm512_set1_epi64(0xd2511f53), by_c = _mm512_set1_epi64(0xcd9e8d57);
    const __m512i lanes = _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0);
    for (u64 lane = 0; lane < COUNTERS; lane += 8) {
        __m512i a = _mm512_add_epi64(_mm512_set1_epi64(static_cast<i64>(counter + lane)), lanes);
        __m512i b = _mm512_maskz_srli_epi64(ALL, a, 32), c = _mm512_set1_epi64(static_cast<i64>(above));
        __m512i d = _mm512_setzero_si512();
        u64 low = key, high = key >> 32;
#pragma GCC unroll 10
        for (int round = 0; round < 10; ++round) {
            const __m512i first = _mm512_maskz_mul_epu32(ALL, a, by_a),
                          second = _mm512_maskz_mul_epu32(ALL, c, by_c);
            const __m512i k0 = _mm512_set1_epi64(static_cast<i64>(low));
            const __m512i k1 = _mm512_set1_epi64(static_cast<i64>(high));
            a = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(ALL, second, 32), b, k0, 0x96);
            c = _mm512_ternarylogic_epi64(_mm512_maskz_srli_epi64(ALL, first, 32), d, k1, 0x96);
            b = second;
            d = first;
            low += 0x9e3779b9U;
            high += 0xbb67ae85U;
        }
        const __m512i drawn[4] = {a, b, c, d};
#pragma GCC unroll 4
        for (u64 i = 0; i < 4; ++i)
            _mm256_storeu_si256(reinterpret_cast<__m256i*>(words + i * stride + lane),
                                _mm512_maskz_cvtepi64_epi32(ALL, drawn[i]));
    }
}

#else

inline void random_group(u64 key, u64 counter, u64 above, u32* words, u64 stride) {
    for (u64 lane = 0; lane < COUNTERS; ++lane) {
        const Philox drawn = philox(key, counter + lane, above);
        for (u64 i = 0; i < 4; ++i) words[i * stride + lane] = drawn.word[i];
    }
}

#endif

// words[i] = that of slot `first` + i, for groups of DRAWN_TOGETHER slots; `first` begins one.
inline void random_words(u64 key, u64 first, u64 groups, u32* words) {
    for (u64 group = 0; group < groups; ++group)
        random_group(key, (first / DRAWN_TOGETHER + group) * COUNTERS, 0, words + group * DRAWN_TOGETHER,
                     COUNTERS);
}

// visit(i, unit) of `drawn` units of n, 1 <= drawn <= n: one of each of as many stretches of as equal a
// length as there is.
template <class Visit>
inline void for_drawn(u64 n, u64 drawn, u64 key, Visit visit) {
    const u64 step = n / drawn, more = n % drawn;
    u32 words[DRAWN_TOGETHER];
    u64 first = 0, rest = 0;  // i * n / drawn, and what remains
    for (u64 i = 0; i < drawn; ++i) {
        if (i % DRAWN_TOGETHER == 0) random_words(key, i, 1, words);
        rest += more;
        const u64 longer = rest >= drawn;
        rest -= longer * drawn;
        visit(i, first + random_below(words[i % DRAWN_TOGETHER], step + longer));
        first += step + longer;
    }
}

}  // namespace zenc
