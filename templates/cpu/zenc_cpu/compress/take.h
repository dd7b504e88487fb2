// Selected units go into the gradient, and all that is left stays: one pass.
#pragma once

#include "zenc_cpu/compress/threshold.h"

namespace zenc {

constexpr u64 EVERY = 1ULL << 62;  // as `equal` of a threshold: all that reach it

struct Taken {
    i64 count;       // of units
    double squares;  // of what is left
};

// A row that is taken or not.
template <class T>
inline void take_row(float* left, u64 width, bool taken, T* gradient, float* velocity) {
    for (u64 i = 0; i < width; ++i) {
        gradient[i] = taken ? Type<T>::round(left[i]) : Type<T>::round(0.0F);
        if (!taken) continue;
        left[i] -= Type<T>::widen(gradient[i]);
        if (velocity) velocity[i] = 0;
    }
}

// +0 in n <= 64 places: of 64 by as many stores as it takes, and no call.
template <class T>
inline void put_zeros(T* to, u64 n) {
    if (n != MARKED) return static_cast<void>(std::memset(static_cast<void*>(to), 0, n * sizeof(T)));
    auto* const vectors = reinterpret_cast<Floats*>(to);
    for (u64 i = 0; i < MARKED * sizeof(T) / sizeof(Floats); ++i) vectors[i] = Floats{};
}

// The bits of those of n <= 64 values that the threshold takes.
inline u64 marks_of(const float* values, u64 n, Threshold& threshold) {
    const u64 reached = marks_from(values, n, threshold.magnitude);
    const u64 above = marks_from(values, n, threshold.magnitude + 1);
    u64 taken = reached;
    if (reached != above && threshold.equal < EVERY)
        for_marks(reached, [&](u64 i) {
            if (!takes_next(threshold, magnitude_of(values[i]))) taken &= ~(1ULL << i);
        });
    return taken;
}

// The units of `taken` are moved; all of n <= 64 others are +0 in the gradient.
template <class T>
inline void move_taken(float* left, u64 n, u64 taken, T* gradient, float* velocity) {
    put_zeros(gradient, n);
    for_marks(taken,
              [&](u64 i) { take_row(left + i, 1, true, gradient + i, velocity ? velocity + i : nullptr); });
}

#if ZENC_LANES

// Moves lanes without a branch: which units are taken can't be foreseen.
inline void move_lanes(float* left, u64 taken, float* gradient, float* velocity) {
    const __m512 zeros = _mm512_setzero_ps();
    for (u64 i = 0; i < MARKED; i += 16) {
        const auto mask = static_cast<__mmask16>(taken >> i);
        const __m512 x = _mm512_loadu_ps(left + i);
        _mm512_storeu_ps(gradient + i, _mm512_maskz_mov_ps(mask, x));
        _mm512_mask_storeu_ps(left + i, mask, _mm512_sub_ps(x, x));
        if (velocity) _mm512_mask_storeu_ps(velocity + i, mask, zeros);
    }
}

template <>
inline void move_taken(float* left, u64 n, u64 taken, float* gradient, float* velocity) {
    if (n == MARKED) return move_lanes(left, taken, gradient, velocity);
    for (u64 i = 0; i < n; ++i)
        take_row(left + i, 1, taken >> i & 1, gradient + i, velocity ? velocity + i : nullptr);
}

#endif

// Takes the marked ones of n <= STRETCH values. Returns their number.
template <class T>
ZENC_SHARED_CODE u64 take_marked(float* left, u64 n, const u64* marks, T* gradient, float* velocity) {
    u64 count = 0;
    for_words(n, [&](u64 first, u64 length) {
        const u64 taken = marks[first / MARKED];
        move_taken(left + first, length, taken, gradient + first, velocity ? velocity + first : nullptr);
        count += population(taken);
    });
    return count;
}

template <class T>
inline Taken take(float* left, u64 n, Threshold threshold, T* gradient, float* velocity) {
    Squares squares;
    u64 count = 0, marks[STRETCH / MARKED];
    for (u64 start = 0; start < n; start += STRETCH) {
        const u64 length = n - start < STRETCH ? n - start : STRETCH;
        for_words(length, [&](u64 first, u64 some) {
            marks[first / MARKED] = marks_of(left + start + first, some, threshold);
        });
        count +=
            take_marked(left + start, length, marks, gradient + start, velocity ? velocity + start : nullptr);
        squares.add(left + start, length);
    }
    return {static_cast<i64>(count), squares.sum()};
}

// Rows of `width` values, by a bit for each.
template <class T>
inline Taken take_rows(float* left, u64 rows, u64 width, const u64* marks, T* gradient, float* velocity) {
    Squares squares;
    u64 count = 0;
    for (u64 row = 0; row < rows; ++row) {
        const bool taken = marks[row / MARKED] >> row % MARKED & 1;
        const u64 at = row * width;
        take_row(left + at, width, taken, gradient + at, velocity ? velocity + at : nullptr);
        squares.add(left + at, width);
        count += taken;
    }
    return {static_cast<i64>(count), squares.sum()};
}

// The numbers of the selected units, ascending. Returns how many.
inline u64 list_taken(const float* values, u64 n, Threshold threshold, i64* out) {
    u64 count = 0;
    for_words(n, [&](u64 first, u64 length) {
        for_marks(marks_of(values + first, length, threshold),
                  [&](u64 i) { out[count++] = static_cast<i64>(first + i); });
    });
    return count;
}

}  // namespace zenc
