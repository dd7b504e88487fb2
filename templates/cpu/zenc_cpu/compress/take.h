// Selected units go into the gradient, and all that is left stays: one pass.
#pragma once

#include "zenc_cpu/compress/random.h"
#include "zenc_cpu/compress/threshold.h"

namespace zenc {

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

// The bits of `marks` that the threshold takes, of units that reach it; `equal` falls.
inline u64 taken_of(u64 marks, const float* values, Threshold& threshold) {
    u64 taken = marks;
    for_marks(marks, [&](u64 i) {
        const u32 magnitude = magnitude_of(values[i]);
        if (!is_taken(threshold, magnitude, 0)) taken &= ~(1ULL << i);
        threshold.equal -= threshold.equal != 0 && magnitude == threshold.magnitude;
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

// The same without a branch: which units are taken can't be foreseen.
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

// marks(first, length) says which of up to 64 values from `first` on are taken.
template <class T, class Marks>
inline Taken take_marked(float* left, u64 n, T* gradient, float* velocity, Marks marks) {
    Squares squares;
    u64 count = 0;
    for (u64 start = 0; start < n; start += STRETCH) {
        const u64 end = n - start < STRETCH ? n : start + STRETCH;
        for (u64 first = start; first < end; first += MARKED) {
            const u64 length = end - first < MARKED ? end - first : MARKED;
            const u64 taken = marks(first, length);
            move_taken(left + first, length, taken, gradient + first, velocity ? velocity + first : nullptr);
            count += population(taken);
        }
        squares.add(left + start, end - start);
    }
    return {static_cast<i64>(count), squares.sum()};
}

template <class T>
inline Taken take(float* left, u64 n, Threshold threshold, T* gradient, float* velocity) {
    return take_marked(left, n, gradient, velocity, [&](u64 first, u64 length) {
        const float* const values = left + first;
        const u64 reached = marks_from(values, length, threshold.magnitude);
        const u64 above = marks_from(values, length, threshold.magnitude + 1);
        return reached == above ? reached : taken_of(reached, values, threshold);
    });
}

// Rows, whose magnitudes are given.
template <class T>
inline Taken take_rows(float* left, u64 rows, u64 width, const float* magnitudes, Threshold threshold,
                       T* gradient, float* velocity) {
    Squares squares;
    u64 count = 0;
    for (u64 row = 0; row < rows; ++row) {
        const u32 magnitude = magnitude_of(magnitudes[row]);
        const bool taken = is_taken(threshold, magnitude, 0);
        threshold.equal -= taken && magnitude == threshold.magnitude;
        count += taken;
        const u64 at = row * width;
        take_row(left + at, width, taken, gradient + at, velocity ? velocity + at : nullptr);
        squares.add(left + at, width);
    }
    return {static_cast<i64>(count), squares.sum()};
}

// The k greatest of each block of `block` units; of a shorter last one as large a share, one at least.
template <class T>
inline Taken take_of_blocks(float* left, u64 units, u64 width, const float* magnitudes, u64 block, u64 k,
                            T* gradient, float* velocity) {
    Taken all{0, 0};
    for (u64 first = 0; first < units; first += block) {
        const u64 length = units - first < block ? units - first : block;
        const u64 share = length == block ? k : k * length / block;
        const float* const values = width == 1 ? left + first : magnitudes + first;
        Threshold threshold{};
        if (!exact_threshold(values, length, share == 0 ? 1 : share, threshold)) return {-1, 0};
        const u64 at = first * width;
        float* const speed = velocity ? velocity + at : nullptr;
        const Taken here = width == 1
                               ? take(left + at, length, threshold, gradient + at, speed)
                               : take_rows(left + at, length, width, values, threshold, gradient + at, speed);
        all = {all.count + here.count, all.squares + here.squares};
    }
    return all;
}

// Each unit with a chance of `chance` / 2^31: whose word is among as many, but for its upper bit.
template <class T>
inline Taken take_random(float* left, u64 units, u64 width, u64 chance, u64 key, T* gradient,
                         float* velocity) {
    const auto least = static_cast<u32>((1U << 31) - chance);
    u32 words[DRAWN_TOGETHER];
    const auto drawn = [&](u64 first, u64 length) {
        if (first % DRAWN_TOGETHER == 0) random_words(key, first, 1, words);
        float bits[MARKED];
        std::memcpy(bits, words + first % DRAWN_TOGETHER, sizeof bits);
        return chance == 0 ? 0 : marks_from(bits, length, least);
    };
    if (width == 1) return take_marked(left, units, gradient, velocity, drawn);
    Taken all{0, 0};
    Squares squares;
    for (u64 first = 0; first < units; first += MARKED) {
        const u64 length = units - first < MARKED ? units - first : MARKED;
        const u64 marks = drawn(first, length);
        for (u64 i = 0; i < length; ++i) {
            const u64 at = (first + i) * width;
            const bool taken = marks >> i & 1;
            take_row(left + at, width, taken, gradient + at, velocity ? velocity + at : nullptr);
        }
        all.count += static_cast<i64>(population(marks));
        squares.add(left + first * width, length * width);
    }
    return {all.count, squares.sum()};
}

// The numbers of the selected units, ascending. Returns how many.
inline u64 list_taken(const float* values, u64 n, Threshold threshold, i64* out) {
    u64 count = 0;
    for (u64 first = 0; first < n; first += MARKED) {
        const u64 length = n - first < MARKED ? n - first : MARKED;
        const u64 reached = marks_from(values + first, length, threshold.magnitude);
        for_marks(taken_of(reached, values + first, threshold),
                  [&](u64 i) { out[count++] = static_cast<i64>(first + i); });
    }
    return count;
}

}  // namespace zenc
