// Placing: the values of marked units, moved into the order of their slots. The rank of a slot's bit is the
// place of its row (docs/adr/0004-bitmap-ranking.md): no sort, no hash table, no collision.
#pragma once

#include "zenc_cpu/geometry.h"
#include "zenc_cpu/memory.h"
#include "zenc_cpu/values.h"

namespace zenc {

// visit(i, row) for every input i, in order: its row among all marked units. Returns 0, or NOT_MARKED at the
// first batch with a unit that is out of range or has no bit.
template <class Mapping, class Visit>
inline i64 for_each_row(const Geometry<Mapping>& geometry, const i64* units, u64 n, const u64* bitmap,
                        const u64* before, Visit visit) {
    bool all_marked = true;
    const i64 status = for_each_id_batch(units, n, geometry.units, [&](u64 first, u64* batch, u64 size) {
        u64 slots[MOST_IN_BATCH];
        u64 rows[BATCH];
        slots_of_batch(geometry.mapping, batch, size, slots);
        for (u64 i = 0; i < size; ++i) {
            const auto place = geometry.place(slots[i]);
            const u64 word = bitmap[place.word];
            all_marked = all_marked && (word & place.bit) != 0;
            rows[i] = before[place.word] + population(word & (place.bit - 1));
        }
        for (u64 i = 0; i < size && all_marked; ++i) visit(first + i, rows[i]);
    });
    return status == 0 && all_marked ? 0 : NOT_MARKED;
}

// No unit comes twice: every row is a copy.
template <class T, class Width, class Mapping>
inline i64 place_once(const Geometry<Mapping>& geometry, Width width, const i64* units, u64 n,
                      const T* values, const u64* bitmap, const u64* before, typename Type<T>::Sum divisor,
                      T* out) {
    return for_each_row(geometry, units, n, bitmap, before, [&](u64 i, u64 row) {
        divide_row(values + i * width, width, divisor, out + row * width);
    });
}

// Units come several times: group the inputs by row, by counting, and sum every group in the order of the
// input.
template <class T, class Width, class Mapping>
inline i64 place_summed(const Geometry<Mapping>& geometry, Width width, const i64* units, u64 n,
                        const T* values, const u64* bitmap, const u64* before, u64 distinct,
                        typename Type<T>::Sum divisor, T* out) {
    const Scratch<u64> rows(n);
    const Scratch<u64> ends(distinct + 1);  // first where a row's inputs start, in the end where they end
    const Scratch<const T*> inputs(n);
    if (rows.failed() || ends.failed() || inputs.failed()) return NO_MEMORY;
    bool all_known = true;
    const i64 status = for_each_row(geometry, units, n, bitmap, before, [&](u64 i, u64 row) {
        all_known = all_known && row < distinct;
        rows[i] = row;
        if (row < distinct) ++ends[row + 1];
    });
    if (status < 0 || !all_known) return NOT_MARKED;
    for (u64 row = 0; row < distinct; ++row) ends[row + 1] += ends[row];
    for (u64 i = 0; i < n; ++i) inputs[ends[rows[i]]++] = values + i * width;
    for (u64 row = 0, start = 0; row < distinct; start = ends[row++]) {
        if (ends[row] == start) return WRONG_COUNT;
        sum_rows<true>(inputs.get() + start, ends[row] - start, width, divisor, out + row * width);
    }
    return 0;
}

// Values [n, width] of units [n] -> out [distinct, width], in the order of the slots; several values of one
// unit are summed in the order of the input. Each is divided by `divisor` first. `bitmap` and `before` come
// from mark_units and rank, `distinct` is the count of rank.
template <class T, class Mapping>
inline i64 place_units(const Geometry<Mapping>& geometry, const i64* units, u64 n, const T* values,
                       const u64* bitmap, const u64* before, u64 distinct, i64 divisor, T* out) {
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    return with_width(geometry.width, [&](auto width) {
        return n == distinct
                   ? place_once(geometry, width, units, n, values, bitmap, before, by, out)
                   : place_summed(geometry, width, units, n, values, bitmap, before, distinct, by, out);
    });
}

// The marked rows of a dense tensor [units, width] -> out, in the order of the slots, each divided by
// `divisor`.
template <class T, class Mapping>
inline void place_dense(const Geometry<Mapping>& geometry, const T* tensor, const u64* bitmap, i64 divisor,
                        T* out) {
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    with_width(geometry.width, [&](auto width) {
        for_each_batch(geometry, bitmap, [&](u64, const u64* units, u64 n, u64) {
            if constexpr (!Mapping::IS_IDENTITY)
                for (u64 i = 0; i < n; ++i) __builtin_prefetch(tensor + units[i] * width);
            for (u64 i = 0; i < n; ++i, out += width) divide_row(tensor + units[i] * width, width, by, out);
        });
    });
}

}  // namespace zenc
