// Expansion of segments: to a part with all of its slots, to a dense tensor, to a coalesced list of units.
#pragma once

#include "zenc_cpu/primitives/element_blocks.h"
#include "zenc_cpu/primitives/memory.h"
#include "zenc_cpu/primitives/value_rows.h"

namespace zenc {

// out [slots, width]: the values of the occupied slots, +0 elsewhere.
template <class T, class Width>
ZENC_SHARED_CODE inline void densify(const u64* bitmap, u64 slots, Width width, const T* values, T* out) {
    for (u64 w = 0; w < words_of(slots); ++w) {
        const u64 n = slots - 64 * w < 64 ? slots - 64 * w : 64;
        T* const rows = out + 64 * w * width;
        if (bitmap[w] == low_mask(n)) {
            copy_bytes(rows, values, n * width * sizeof(T));
            values += n * width;
            continue;
        }
        clear_bytes(rows, n * width * sizeof(T));
        for_each_bit(bitmap[w], [&](u64 bit) {
            copy_row(values, width, rows + bit * width);
            values += width;
        });
    }
}

template <class T>
inline void densify_rows(const u64* bitmap, u64 slots, u64 width, const T* values, T* out) {
    with_width(width, [&](auto known) { densify(bitmap, slots, known, values, out); });
}

template <class T, class Width, class Mapping>
ZENC_SHARED_CODE inline void expand_rows(const Geometry<Mapping>& geometry, Width width, const u64* bitmap,
                                         const T* const* part_values, T* out) {
    if constexpr (Mapping::IS_IDENTITY) {
        for (u64 part = 0; part < geometry.parts; ++part)
            densify(bitmap + part * geometry.part_words, geometry.slots_of(part), width, part_values[part],
                    out + geometry.first_slot(part) * width);
    } else {
        clear_bytes(out, geometry.units * width * sizeof(T));
        for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
            for (u64 i = 0; i < n; ++i) __builtin_prefetch(out + units[i] * width, 1);
            const T* row = part_values[part] + first * width;
            for (u64 i = 0; i < n; ++i, row += width) copy_row(row, width, out + units[i] * width);
        });
    }
}

// Single elements: every block is written once, in the order of the slots.
template <class T>
ZENC_SHARED_CODE inline void expand_rows(const Geometry<Permutation>& geometry, One, const u64* bitmap,
                                         const T* const* part_values, T* out) {
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        constexpr u64 UNITS = UNITS_OF<Block>;
        for (u64 part = 0; part < geometry.parts; ++part) {
            const T* values = part_values[part];
            for_each_block_of<true, Block>(geometry, part, bitmap,
                                           [&](const Block* blocks, const u64* units, u64 n) {
                                               for (u64 i = 0; i < n; ++i)
                                                   __builtin_prefetch(out + units[i], 1);
                                               for (u64 i = 0; i < n; ++i) {
                                                   alignas(LINE_BYTES) T whole[UNITS];
                                                   spread_values(values, blocks[i], whole);
                                                   values += population(blocks[i]);
                                                   const u64 left = geometry.units - units[i];
                                                   if (left < UNITS)
                                                       copy_bytes(out + units[i], whole, left * sizeof(T));
                                                   else
                                                       copy_bytes(out + units[i], whole, sizeof whole);
                                               }
                                           });
        }
    });
}

// out [units, width] from the segments of all parts; absent units are +0.
template <class T, class Mapping>
inline void expand_dense(const Geometry<Mapping>& geometry, const u64* bitmap, const T* const* part_values,
                         T* out) {
    with_width(geometry.width, [&](auto width) { expand_rows(geometry, width, bitmap, part_values, out); });
}

// visit(unit, block, values) for the blocks of single elements, in the order of the tensor. A batch of values
// is on its way from memory before it is looked at. Returns 0 or NO_MEMORY.
template <class T, class Visit>
inline i64 for_each_filled_block(const Geometry<Permutation>& geometry, const u64* bitmap,
                                 const T* const* part_values, Visit visit) {
    const Scratch<u64> before(geometry.words());
    if (before.failed()) return NO_MEMORY;
    rank(bitmap, geometry.words(), before.get());
    const Places<Permutation> places(geometry, bitmap, before.get(), part_values);
    if (places.failed()) return NO_MEMORY;
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        for_each_block(geometry, [&](u64 unit, u64 n, const u64* parts, const u64* bits) {
            const T* values[BATCH];
            for (u64 i = 0; i < n; ++i) {
                values[i] = places.template values_of<const T>(parts[i], bits[i]);
                __builtin_prefetch(values[i]);
            }
            for (u64 i = 0; i < n; ++i, unit += UNITS_OF<Block>)
                visit(unit, load_block<Block>(bitmap, bits[i]), values[i]);
        });
    });
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

// Single elements, block by block: in the order of the tensor they ascend.
template <class T>
ZENC_SHARED_CODE inline i64 expand_sorted(const Geometry<Permutation>& geometry, One, const u64* bitmap,
                                          const T* const* part_values, i64* units_out, T* values_out) {
    const i64* const start = units_out;
    const i64 status =
        for_each_filled_block(geometry, bitmap, part_values, [&](u64 unit, auto block, const T* values) {
            for_each_bit(block, [&](u64 bit) {
                *units_out++ = static_cast<i64>(unit + bit);
                *values_out++ = *values++;
            });
        });
    return status < 0 ? status : units_out - start;
}

// Contiguous parts hold ascending units already: one linear copy a part.
template <class T>
inline i64 expand_linear(const Geometry<Contiguous>& geometry, const u64* bitmap, const T* const* part_values,
                         i64* units_out, T* values_out) {
    u64 count = 0;
    for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
        const u64 width = geometry.width;
        copy_bytes(units_out + count, units, n * 8);
        copy_bytes(values_out + count * width, part_values[part] + first * width, n * width * sizeof(T));
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
