// Marks of 64 values at a time: a bit for each whose magnitude is at least a threshold's.
#pragma once

#include "zenc/compress/magnitude.h"
#include "zenc_cpu/primitives/lanes.h"

namespace zenc {

constexpr u64 MARKED = 64;

// visit(first, length) for each 64 of n values.
template <class Visit>
inline void for_words(u64 n, Visit visit) {
    for (u64 first = 0; first < n; first += MARKED) visit(first, n - first < MARKED ? n - first : MARKED);
}

#if ZENC_LANES

inline u64 marks_from(const float* values, u32 least) {
    const __m512i limit = _mm512_set1_epi32(static_cast<int>(least));
    const __m512i magnitude = _mm512_set1_epi32(static_cast<int>(MAGNITUDE));
    u64 marks = 0;
    for (u64 i = 0; i < MARKED; i += 16) {
        const __m512i bits = _mm512_and_si512(_mm512_loadu_si512(values + i), magnitude);
        marks |= static_cast<u64>(_mm512_cmp_epu32_mask(bits, limit, _MM_CMPINT_NLT)) << i;
    }
    return marks;
}

#else

inline u64 marks_from(const float* values, u32 least) {
    u32 any = 0;
    for (u64 i = 0; i < MARKED; ++i) any |= static_cast<u32>(magnitude_of(values[i]) >= least);
    u64 marks = 0;
    if (any)
        for (u64 i = 0; i < MARKED; ++i) marks |= static_cast<u64>(magnitude_of(values[i]) >= least) << i;
    return marks;
}

#endif

// Marks for n <= 64 values.
inline u64 marks_from(const float* values, u64 n, u32 least) {
    if (n == MARKED) return marks_from(values, least);
    u64 marks = 0;
    for (u64 i = 0; i < n; ++i) marks |= static_cast<u64>(magnitude_of(values[i]) >= least) << i;
    return marks;
}

// Whether the next unit is taken, of all in their order: `equal` falls with each that is equal to it.
inline bool takes_next(Threshold& threshold, u32 magnitude) {
    const bool equal = magnitude == threshold.magnitude && threshold.equal != 0;
    threshold.equal -= equal;
    return equal || magnitude > threshold.magnitude;
}

// visit(i) for the set bits of `marks`, ascending.
template <class Visit>
inline void for_marks(u64 marks, Visit visit) {
    for (; marks != 0; marks &= marks - 1) visit(static_cast<u64>(__builtin_ctzll(marks)));
}

}  // namespace zenc
