// Expansion of segments: to a part with all of its slots, to a dense tensor, to a coalesced list of units.
#pragma once

#include "zenc_cpu/primitives/element_blocks.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// The occupied units of all parts to their places; others stay as they are.
template <class T, class Mapping>
ZENC_SHARED_CODE inline void expand_rows(const Geometry<Mapping>& geometry, const u64* bitmap,
                                         const T* const* part_values, T* out) {
    const u64 width = geometry.width;
    for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
        for (u64 i = 0; i < n; ++i) __builtin_prefetch(out + units[i] * width, 1);
        const T* row = part_values[part] + first * width;
        for (u64 i = 0; i < n; ++i, row += width) copy_row(row, width, out + units[i] * width);
    });
}

constexpr u64 AHEAD = 64;  // blocks between the one that is written and the one that is fetched

// Single elements: a block that has any is written whole.
template <class T, class Mapping>
ZENC_SHARED_CODE inline void expand_blocks(const Geometry<Mapping>& geometry, const u64* bitmap,
                                           const T* const* part_values, T* out) {
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        for (u64 part = 0; part < geometry.parts; ++part) {
            const T* values = part_values[part];
            const u64 end = end_of_elements(geometry, part);
            const auto expand = [&](const u64* units, const Block* blocks, u64 n) {
                const T* from = values;  // local: no write to the output can change it
                for (u64 i = 0; i < n && i < AHEAD; ++i) __builtin_prefetch(out + units[i], 1);
                for (u64 i = 0; i < n; from += population(blocks[i++])) {
                    if (i + AHEAD < n) __builtin_prefetch(out + units[i + AHEAD], 1);
                    if (end - units[i] >= UNITS_OF<Block>) {
                        spread_values(from, blocks[i], out + units[i]);
                    } else {
                        T whole[UNITS_OF<Block>];
                        spread_values(from, blocks[i], whole);
                        copy_bytes(out + units[i], whole, (end - units[i]) * sizeof(T));
                    }
                }
                values = from;
            };
            for_filled_blocks<Block>(geometry, part, bitmap, expand);
        }
    });
}

// Units of `own` that the sum has not become +0. Returns 0 or NO_MEMORY.
template <class T, class Mapping>
inline i64 clear_lost(const Geometry<Mapping>& geometry, const u64* bitmap, const u64* own, T* out) {
    u64 any = 0;
    for (u64 w = 0; w < geometry.words(); ++w) any |= own[w] & ~bitmap[w];
    if (any == 0) return 0;
    const Scratch<u64> lost(geometry.words());
    if (lost.failed()) return NO_MEMORY;
    for (u64 w = 0; w < geometry.words(); ++w) lost[w] = own[w] & ~bitmap[w];
    const u64 row_bytes = geometry.width * sizeof(T);
    for_each_batch(geometry, lost.get(), [&](u64, const u64* units, u64 n, u64) {
        for (u64 i = 0; i < n; ++i) clear_bytes(out + units[i] * geometry.width, row_bytes);
    });
    return 0;
}

// The segments of all parts in place: out [units, width] is the tensor of which mark_tensor found `own`, and
// becomes the sum. Absent units are +0. Returns 0 or NO_MEMORY.
template <class T, class Mapping>
inline i64 expand_dense(const Geometry<Mapping>& geometry, const u64* bitmap, const T* const* part_values,
                        const u64* own, T* out) {
    if (const i64 status = clear_lost(geometry, bitmap, own, out)) return status;
    if constexpr (BY_BLOCKS<Mapping>)
        if (geometry.width == 1) return expand_blocks(geometry, bitmap, part_values, out), 0;
    expand_rows(geometry, bitmap, part_values, out);
    return 0;
}

// A word of a bitmap, and the bits set in the words below it: what ranking looks up, in one place.
struct RankedWord {
    u64 bits;
    u64 before;

    // The set bits below number `bit` of this word, and below this word.
    u64 rank(u64 bit) const { return before + population(bits & low_mask(bit)); }
};

// The numbers of all set bits, ascending. `out` has room for `count`, which is how many there are.
inline void list_bits(const RankedWord* marks, u64 words, u64 count, i64* out) {
    const i64* const end = out + count;
    u64 w = 0;
    for (; w < words && end - out >= 64; ++w) out += append_bits<4>(marks[w].bits, 64 * w, out);
    for (; w < words; ++w)  // no room for blind writes
        for_each_bit(marks[w].bits, [&](u64 bit) { *out++ = static_cast<i64>(64 * w + bit); });
}

// The occupied units, ascending, and their rows: a coalesced COO tensor. Sorted by marking and ranking, like
// a push. units_out [count], values_out [count, width]. Returns count or NO_MEMORY. Until all rows are in
// their places, units_out has the units in the order of their slots: fresh memory costs more than a copy.
template <class T, class Width, class Mapping>
inline i64 expand_sorted(const Geometry<Mapping>& geometry, Width width, const u64* bitmap,
                         const T* const* part_values, i64* units_out, T* values_out) {
    const u64 words = words_of(geometry.units);
    const Scratch<RankedWord> marks(words);
    if (marks.failed()) return NO_MEMORY;
    i64* next = units_out;
    for_each_batch(geometry, bitmap, [&](u64, const u64* units, u64 n, u64) {
        for (u64 i = 0; i < n; ++i) marks[units[i] / 64].bits |= 1ULL << (units[i] % 64);
        copy_bytes(next, units, n * 8);
        next += n;
    });
    u64 count = 0;
    for (u64 w = 0; w < words; ++w) {
        marks[w].before = count;
        count += population(marks[w].bits);
    }
    const i64* unit = units_out;
    const RowCopy copy(values_out, count * width * sizeof(T), width * sizeof(T));
    for (u64 part = 0; part < geometry.parts; ++part) {
        const T* row = part_values[part];
        const u64 rows = population(bitmap + part * geometry.part_words, geometry.part_words);
        for (u64 i = 0; i < rows; ++i, ++unit, row += width) {
            const u64 place = marks[static_cast<u64>(*unit) / 64].rank(static_cast<u64>(*unit) % 64);
            copy.row(row, width, values_out + place * width);
        }
    }
    copy.finish();
    list_bits(marks.get(), words, count, units_out);
    return static_cast<i64>(count);
}

// Parts that are ranges hold ascending units already: one linear copy a part, or none where the rows of the
// only part are in their places.
template <class T, class Mapping>
inline i64 expand_linear(const Geometry<Mapping>& geometry, const u64* bitmap, const T* const* part_values,
                         i64* units_out, T* values_out) {
    u64 count = 0;
    for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
        const u64 width = geometry.width;
        copy_bytes(units_out + count, units, n * 8);
        T* const rows = values_out + count * width;
        const T* const from = part_values[part] + first * width;
        if (rows != from) copy_bytes(rows, from, n * width * sizeof(T));
        count += n;
    });
    return static_cast<i64>(count);
}

template <class T, class Mapping>
ZENC_SHARED_CODE inline i64 expand_units(const Geometry<Mapping>& geometry, const u64* bitmap,
                                         const T* const* part_values, i64* units_out, T* values_out) {
    if constexpr (Mapping::IS_IDENTITY) {
        return expand_linear(geometry, bitmap, part_values, units_out, values_out);
    } else {
        return with_width(geometry.width, [&](auto width) {
            return expand_sorted(geometry, width, bitmap, part_values, units_out, values_out);
        });
    }
}

}  // namespace zenc
