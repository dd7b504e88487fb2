// Merging segments of one part: for every unit of the union, the values of the segments that have it are
// added in the order of the list. The union is walked once, word by word, with one cursor per segment: no
// search, no atomics.
#pragma once

#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/lane_geometry.h"
#include "zenc_cpu/primitives/lanes.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Bit k: segment `first` + k, of up to 64, has number `bit` of word w. Without a branch, which would be
// mispredicted once or twice a unit.
inline u64 owners_of(const u64* const* bitmaps, u64 first, u64 m, u64 w, u64 bit) {
    const u64 n = m - first < 64 ? m - first : 64;
    u64 owners = 0;
    for (u64 k = 0; k < n; ++k) owners |= (bitmaps[first + k][w] >> bit & 1) << k;
    return owners;
}

template <class T>
inline u64 merge_rows(u64 m, const u64* const* bitmaps, const T** cursors, const T** rows, u64 words,
                      u64 width, T* out) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        u64 all = 0;
        for (u64 k = 0; k < m; ++k) all |= bitmaps[k][w];
        total += population(all);
        for_each_bit(all, [&](u64 bit) {
            u64 n = 0;
            for (u64 first = 0; first < m; first += 64)
                for_each_bit(owners_of(bitmaps, first, m, w, bit), [&](u64 k) {
                    rows[n++] = cursors[first + k];
                    cursors[first + k] += width;
                });
            sum_rows<false>(rows, n, width, 1, out);
            out += width;
        });
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

#if ZENC_LANES

// Whether all of m segments have all slots of word w.
inline bool is_full_word(u64 m, const u64* const* bitmaps, u64 w) {
    u64 both = ~0ULL;
    for (u64 k = 0; k < m; ++k) both &= bitmaps[k][w];
    return both == ~0ULL;
}

// The 64 sums of a word that all of m segments have.
template <class T>
inline T* add_full_word(u64 m, const T** cursors, T* out) {
    T sums[64];
    std::memcpy(sums, cursors[0], sizeof sums);
    for (u64 k = 1; k < m; ++k)
        for (u64 i = 0; i < 64; ++i) sums[i] += cursors[k][i];
    for (u64 k = 0; k < m; ++k) cursors[k] += 64;
    if (m > 1)
        for (u64 i = 0; i < 64; ++i) sums[i] = Type<T>::round(sums[i]);
    std::memcpy(out, sums, sizeof sums);
    return out + 64;
}

// merge_values with the 64 sums of a word in registers: the values of a segment go to their lanes at once. A
// word costs the same however many bits it has.
template <class T>
ZENC_SHARED_CODE inline u64 merge_lanes(u64 m, const u64* const* bitmaps, const T** cursors, u64 words,
                                        T* out) {
    constexpr u64 NUMBER = NUMBER_OF_LANES<T>, VECTORS = sizeof(T);
    const T* const start = out;
    for (u64 w = 0; w < words; ++w) {
        if (is_full_word(m, bitmaps, w)) {
            out = add_full_word(m, cursors, out);
            continue;
        }
        __m512i sums[VECTORS] = {};
        u64 all = 0, added = 0;
        for (u64 k = 0; k < m; ++k) {
            const u64 word = bitmaps[k][w];
            const u64 again = word & all;
            const T* from = cursors[k];
#pragma GCC unroll 8  // or the sums are in memory
            for (u64 v = 0; v < VECTORS; ++v) {
                const auto mask = static_cast<LaneMask<T>>(word >> (v * NUMBER));
                const __m512i with = spread_lanes(sums[v], mask, from);
                const auto twice = static_cast<LaneMask<T>>(again >> (v * NUMBER));
                sums[v] = Lanes<sizeof(T)>::add(with, twice, sums[v], with);
                from += population(mask);
            }
            cursors[k] = from;
            added |= again;
            all |= word;
        }
#pragma GCC unroll 8
        for (u64 v = 0; v < VECTORS; ++v) {
            sums[v] = Lanes<sizeof(T)>::canonical(sums[v], static_cast<LaneMask<T>>(added >> (v * NUMBER)));
            out += keep_lanes(static_cast<LaneMask<T>>(all >> (v * NUMBER)), sums[v], out);
        }
    }
    return static_cast<u64>(out - start);
}

// Whether m segments have so many values that lanes are faster than one after another.
inline bool is_crowded(u64 m, const u64* const* bitmaps, u64 words) {
    constexpr u64 FEW = 4;  // values a word, of all segments together
    u64 total = 0;
    for (u64 k = 0; k < m; ++k) total += population(bitmaps[k], words);
    return total > FEW * words;
}

#endif

// Single values, in lanes where there are some.
template <class T>
inline u64 merge_single(u64 m, const u64* const* bitmaps, const T** cursors, u64 words, T* out) {
#if ZENC_LANES
    if constexpr (sizeof(typename Type<T>::Sum) == sizeof(T))  // no values of 16 bits
        if (is_crowded(m, bitmaps, words)) return merge_lanes(m, bitmaps, cursors, words, out);
#endif
    if (m == 2) return merge_two(bitmaps[0], bitmaps[1], cursors[0], cursors[1], words, out);
    return merge_values(m, bitmaps, cursors, words, out);
}

// m segments (bitmaps of `words` words, values [count_k, width]) -> out [count, width]. Returns count or
// NO_MEMORY.
template <class T>
inline i64 merge(u64 m, const u64* const* bitmaps, const T* const* values, u64 words, u64 width, T* out) {
    const Scratch<const T*> cursors(m);
    const Scratch<const T*> rows(m);
    if (cursors.failed() || rows.failed()) return NO_MEMORY;
    copy_bytes(cursors.get(), values, m * sizeof(T*));
    return static_cast<i64>(width == 1
                                ? merge_single(m, bitmaps, cursors.get(), words, out)
                                : merge_rows(m, bitmaps, cursors.get(), rows.get(), words, width, out));
}

}  // namespace zenc
