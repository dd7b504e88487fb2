// Marks of 64 values at a time: a bit for each whose magnitude is at least a threshold's.
#pragma once

#include "zenc/compress/magnitude.h"
#include "zenc_cpu/primitives/lanes.h"

namespace zenc {

constexpr u64 MARKED = 64;

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

// Of n <= 64 values.
inline u64 marks_from(const float* values, u64 n, u32 least) {
    if (n == MARKED) return marks_from(values, least);
    u64 marks = 0;
    for (u64 i = 0; i < n; ++i) marks |= static_cast<u64>(magnitude_of(values[i]) >= least) << i;
    return marks;
}

// visit(i) for the set bits of `marks`, ascending.
template <class Visit>
inline void for_marks(u64 marks, Visit visit) {
    for (; marks != 0; marks &= marks - 1) visit(static_cast<u64>(__builtin_ctzll(marks)));
}

}  // namespace zenc
