// Selected units go into the gradient, and all that is left stays: one pass.
#pragma once

#include "zenc_cpu/compress/random.h"
#include "zenc_cpu/compress/threshold.h"

namespace zenc {

struct Taken {
    i64 count;       // of units
    double squares;  // of what is left
};

// One after another: rows, random units, and stretches in which units are equal to the threshold.
template <class T>
inline void take_row(float* left, u64 width, bool taken, T* gradient, float* velocity) {
    for (u64 i = 0; i < width; ++i) {
        gradient[i] = taken ? Type<T>::round(left[i]) : Type<T>::round(0.0F);
        if (!taken) continue;
        left[i] -= Type<T>::widen(gradient[i]);
        if (velocity) velocity[i] = 0;
    }
}

// All above `limit`, which is a magnitude.
template <class T>
inline u64 take_above(float* left, u64 n, i64 limit, T* gradient, float* velocity) {
    const auto least = static_cast<int>(limit);
    u32 count = 0;
    for (u64 i = 0; i < n; ++i) count += static_cast<int>(magnitude_of(left[i])) > least;
    if (count == 0) {
        std::memset(static_cast<void*>(gradient), 0, n * sizeof(T));
        return 0;
    }
    T rounded[STRETCH];
    for (u64 i = 0; i < n; ++i) {
        const bool taken = static_cast<int>(magnitude_of(left[i])) > least;
        rounded[i] = Type<T>::round(taken ? left[i] : 0.0F);
    }
    std::memcpy(static_cast<void*>(gradient), rounded, n * sizeof(T));
    if (velocity)
        for (u64 i = 0; i < n; ++i)
            velocity[i] = static_cast<int>(magnitude_of(left[i])) > least ? 0.0F : velocity[i];
    for (u64 i = 0; i < n; ++i) {
        const bool taken = static_cast<int>(magnitude_of(left[i])) > least;
        left[i] = taken ? left[i] - Type<T>::widen(rounded[i]) : left[i];
    }
    return count;
}

inline u64 count_equal(const float* values, u64 n, u32 magnitude) {
    u32 count = 0;
    for (u64 i = 0; i < n; ++i) count += magnitude_of(values[i]) == magnitude;
    return count;
}

template <class T>
inline Taken take(float* left, u64 n, Threshold threshold, T* gradient, float* velocity) {
    constexpr u64 SHORT = 64;  // so that most have nothing to be taken where few units are
    Squares squares;
    u64 count = 0;
    for (u64 first = 0; first < n; first += SHORT) {
        const u64 length = n - first < SHORT ? n - first : SHORT;
        float* const values = left + first;
        float* const speed = velocity ? velocity + first : nullptr;
        const u64 equal = threshold.equal ? count_equal(values, length, threshold.magnitude) : 0;
        const i64 limit = threshold.magnitude - static_cast<i64>(equal != 0);
        if (equal <= threshold.equal) {
            count += take_above(values, length, limit, gradient + first, speed);
            threshold.equal -= equal;
        } else {
            for (u64 i = 0; i < length; ++i) {
                const u32 magnitude = magnitude_of(values[i]);
                const bool taken = is_taken(threshold, magnitude, 0);
                threshold.equal -= taken && magnitude == threshold.magnitude;
                count += taken;
                take_row(values + i, 1, taken, gradient + first + i, speed ? speed + i : nullptr);
            }
        }
        squares.add(values, length);
    }
    return {static_cast<i64>(count), squares.sum()};
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
        if (!exact_threshold(values, length, share == 0 ? 1 : share, nullptr, threshold)) return {-1, 0};
        const u64 at = first * width;
        float* const speed = velocity ? velocity + at : nullptr;
        const Taken here = width == 1
                               ? take(left + at, length, threshold, gradient + at, speed)
                               : take_rows(left + at, length, width, values, threshold, gradient + at, speed);
        all = {all.count + here.count, all.squares + here.squares};
    }
    return all;
}

// Each unit with a chance of `chance` / 2^32.
template <class T>
inline Taken take_random(float* left, u64 units, u64 width, u64 chance, u64 key, T* gradient,
                         float* velocity) {
    Squares squares;
    u64 count = 0;
    u32 words[DRAWN_TOGETHER];
    for (u64 first = 0; first < units; first += DRAWN_TOGETHER) {
        const u64 length = units - first < DRAWN_TOGETHER ? units - first : DRAWN_TOGETHER;
        random_words(key, first, 1, words);
        for (u64 i = 0; i < length; ++i) {
            const bool taken = words[i] < chance;
            const u64 at = (first + i) * width;
            count += taken;
            take_row(left + at, width, taken, gradient + at, velocity ? velocity + at : nullptr);
        }
        squares.add(left + first * width, length * width);
    }
    return {static_cast<i64>(count), squares.sum()};
}

// The numbers of the selected units, ascending. Returns how many.
inline u64 list_taken(const float* values, u64 n, Threshold threshold, i64* out) {
    u64 count = 0;
    for (u64 i = 0; i < n; ++i) {
        const u32 magnitude = magnitude_of(values[i]);
        if (!is_taken(threshold, magnitude, 0)) continue;
        threshold.equal -= magnitude == threshold.magnitude;
        out[count++] = static_cast<i64>(i);
    }
    return count;
}

}  // namespace zenc
