// Merging segments of one part: for every unit of the union, the values of the segments that have it are
// added in the order of the list. The union is walked once, word by word, with one cursor per segment: no
// search, no atomics.
#pragma once

#include "zenc_cpu/bits.h"
#include "zenc_cpu/geometry.h"
#include "zenc_cpu/memory.h"
#include "zenc_cpu/values.h"

namespace zenc {

template <class T>
inline u64 merge_rows(u64 m, const u64* const* bitmaps, const T** cursors, const T** rows, u64 words,
                      u64 width, T* out) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        u64 all = 0;
        for (u64 k = 0; k < m; ++k) all |= bitmaps[k][w];
        total += population(all);
        for (; all != 0; all &= all - 1, out += width) {
            const u64 bit = all & -all;
            u64 n = 0;
            for (u64 k = 0; k < m; ++k) {
                if ((bitmaps[k][w] & bit) == 0) continue;
                rows[n++] = cursors[k];
                cursors[k] += width;
            }
            sum_rows<false>(rows, n, width, 1, out);
        }
    }
    return total;
}

// Two segments of single values. Words that only one of them occupies are copied in one piece.
template <class T>
inline u64 merge_two(const u64* left, const u64* right, const T* a, const T* b, u64 words, T* out) {
    const T* const start = out;
    for (u64 w = 0; w < words; ++w) {
        const u64 both = left[w] & right[w];
        if (both == 0 && (left[w] == 0 || right[w] == 0)) {
            const u64 n = population(left[w] | right[w]);
            const T*& from = left[w] != 0 ? a : b;
            for (u64 i = 0; i < n; ++i) out[i] = from[i];
            from += n;
            out += n;
            continue;
        }
        for_each_bit(left[w] | right[w], [&](u64 bit) {
            if ((both >> bit & 1) != 0)
                *out++ = Type<T>::round(Type<T>::widen(*a++) + Type<T>::widen(*b++));
            else
                *out++ = (left[w] >> bit & 1) != 0 ? *a++ : *b++;
        });
    }
    return static_cast<u64>(out - start);
}

// Single values: a word's 64 sums are made in place, then packed. A slot that one segment has keeps its bits.
template <class T>
inline u64 merge_values(u64 m, const u64* const* bitmaps, const T** cursors, u64 words, T* out) {
    using Sum = typename Type<T>::Sum;
    const T* const start = out;
    Sum sums[64];
    T alone[64];
    for (u64 w = 0; w < words; ++w) {
        u64 once = 0;
        u64 twice = 0;
        for (u64 k = 0; k < m; ++k) {
            const u64 word = bitmaps[k][w];
            for_each_bit(word, [&](u64 bit) {
                const T value = *cursors[k]++;
                if ((once >> bit & 1) == 0) alone[bit] = value;
                sums[bit] =
                    (once >> bit & 1) == 0 ? Type<T>::widen(value) : sums[bit] + Type<T>::widen(value);
            });
            twice |= once & word;
            once |= word;
        }
        for_each_bit(once, [&](u64 bit) {
            *out++ = (twice >> bit & 1) != 0 ? Type<T>::round(sums[bit]) : alone[bit];
        });
    }
    return static_cast<u64>(out - start);
}

// m segments (bitmaps of `words` words, values [count_k, width]) -> out [count, width]. Returns count or
// NO_MEMORY.
template <class T>
inline i64 merge(u64 m, const u64* const* bitmaps, const T* const* values, u64 words, u64 width, T* out) {
    if (m == 2 && width == 1)
        return static_cast<i64>(merge_two(bitmaps[0], bitmaps[1], values[0], values[1], words, out));
    const Scratch<const T*> cursors(m);
    const Scratch<const T*> rows(m);
    if (cursors.failed() || rows.failed()) return NO_MEMORY;
    copy_bytes(cursors.get(), values, m * sizeof(T*));
    return static_cast<i64>(width == 1
                                ? merge_values(m, bitmaps, cursors.get(), words, out)
                                : merge_rows(m, bitmaps, cursors.get(), rows.get(), words, width, out));
}

}  // namespace zenc
