// Placing: the values of marked units, moved to where their parts keep them, in the order of their slots. The
// rank of a slot's bit is the place of its row (docs/adr/0004-bitmap-ranking.md): no sort, no hash table, no
// collision. Every part has an address of its own: the values are written straight into messages.
#pragma once

#include "zenc_cpu/geometry.h"
#include "zenc_cpu/memory.h"
#include "zenc_cpu/values.h"

namespace zenc {

// Where the rows of each part begin, less the rows of all parts before it: a row that is counted over all
// parts finds its place by one addition. Kept as integers, since such an address may lie outside of every
// array.
template <class T>
class Origins {
public:
    template <class Mapping>
    Origins(const Geometry<Mapping>& geometry, const u64* before, T* const* part_outs)
        : origins_(geometry.parts) {
        const u64 row_bytes = geometry.width * sizeof(T);
        if (failed() || geometry.part_words == 0) return;
        for (u64 part = 0; part < geometry.parts; ++part)
            origins_[part] =
                reinterpret_cast<u64>(part_outs[part]) - before[part * geometry.part_words] * row_bytes;
    }

    bool failed() const { return origins_.failed(); }
    u64 of(u64 part) const { return origins_[part]; }
    static T* at(u64 origin, u64 row, u64 width) {
        return reinterpret_cast<T*>(origin + row * width * sizeof(T));
    }

private:
    Scratch<u64> origins_;
};

// visit(first, rows, origins, n) for the inputs [first, first + n), batch by batch: their rows among all
// marked units, and the origins of their parts. Returns 0, or NOT_MARKED at the first batch with a slot that
// is out of range or has no bit.
template <class T, class Mapping, class Visit>
inline i64 for_each_row_batch(const Geometry<Mapping>& geometry, const i64* slots, u64 n, const u64* bitmap,
                              const u64* before, const Origins<T>& origins_of, Visit visit) {
    u64 bits[BATCH];
    u64 rows[BATCH];
    u64 origins[BATCH];
    u64 marked = 1;
    const auto batch = [&](u64 first, const u64* batch_slots, u64 size) {
        geometry.locate(batch_slots, size, origins, bits);
        u64 all = ~0ULL;
        for (u64 i = 0; i < size; ++i) {
            const u64 below = bitmap[bits[i] / 64] << (63 - bits[i] % 64);  // the bit itself comes to the top
            all &= below;
            rows[i] = before[bits[i] / 64] + population(below) - 1;
        }
        marked &= all >> 63;
        for (u64 i = 0; i < size; ++i) origins[i] = origins_of.of(origins[i]);
        if (marked != 0) visit(first, rows, origins, size);
    };
    return for_each_id_batch(slots, n, geometry.units, batch) == 0 && marked != 0 ? 0 : NOT_MARKED;
}

// No unit comes twice: every row is a copy.
template <class T, class Width, class Mapping>
inline i64 place_once(const Geometry<Mapping>& geometry, Width width, const i64* slots, u64 n,
                      const T* values, const u64* bitmap, const u64* before, typename Type<T>::Sum divisor,
                      const Origins<T>& origins_of) {
    const auto copy = [&](u64 first, const u64* rows, const u64* origins, u64 size) {
        const T* from = values + first * width;
        if (divisor == 1)
            for (u64 i = 0; i < size; ++i, from += width)
                copy_row(from, width, Origins<T>::at(origins[i], rows[i], width));
        else
            for (u64 i = 0; i < size; ++i, from += width)
                divide_row(from, width, divisor, Origins<T>::at(origins[i], rows[i], width));
    };
    return for_each_row_batch(geometry, slots, n, bitmap, before, origins_of, copy);
}

// Units come several times: group the inputs by row, by counting, and sum every group in the order of the
// input.
template <class T, class Width, class Mapping>
inline i64 place_summed(const Geometry<Mapping>& geometry, Width width, const i64* slots, u64 n,
                        const T* values, const u64* bitmap, const u64* before, u64 distinct,
                        typename Type<T>::Sum divisor, const Origins<T>& origins_of) {
    const Scratch<u64> row_of(n);
    const Scratch<u64> ends(distinct + 1);  // first where a row's inputs start, in the end where they end
    const Scratch<u64> origin_of(distinct);
    const Scratch<const T*> inputs(n);
    if (row_of.failed() || ends.failed() || origin_of.failed() || inputs.failed()) return NO_MEMORY;
    u64 beyond = 0;
    const auto count = [&](u64 first, const u64* rows, const u64* origins, u64 size) {
        for (u64 i = 0; i < size; ++i) beyond += rows[i] >= distinct;
        if (beyond != 0) return;
        for (u64 i = 0; i < size; ++i) {
            row_of[first + i] = rows[i];
            origin_of[rows[i]] = origins[i];
            ++ends[rows[i] + 1];
        }
    };
    const i64 status = for_each_row_batch(geometry, slots, n, bitmap, before, origins_of, count);
    if (status < 0 || beyond != 0) return NOT_MARKED;
    for (u64 row = 0; row < distinct; ++row) ends[row + 1] += ends[row];
    for (u64 i = 0; i < n; ++i) inputs[ends[row_of[i]]++] = values + i * width;
    for (u64 row = 0, start = 0; row < distinct; start = ends[row++]) {
        if (ends[row] == start) return WRONG_COUNT;
        sum_rows<true>(inputs.get() + start, ends[row] - start, width, divisor,
                       Origins<T>::at(origin_of[row], row, width));
    }
    return 0;
}

// Values [n, width] of units in slots [n] -> part_outs: for each part the address of its values, in the order
// of the slots; of parts without any it is not used. Several values of one unit are summed in the order of
// the input. Each is divided by `divisor` first. `slots` and `bitmap` come from mark_units, `before` and
// `distinct` from rank.
template <class T, class Mapping>
inline i64 place_units(const Geometry<Mapping>& geometry, const i64* slots, u64 n, const T* values,
                       const u64* bitmap, const u64* before, u64 distinct, i64 divisor, T* const* part_outs) {
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    const Origins<T> origins(geometry, before, part_outs);
    if (origins.failed()) return NO_MEMORY;
    return with_width(geometry.width, [&](auto width) {
        return n == distinct
                   ? place_once(geometry, width, slots, n, values, bitmap, before, by, origins)
                   : place_summed(geometry, width, slots, n, values, bitmap, before, distinct, by, origins);
    });
}

// The marked rows of a dense tensor [units, width] -> part_outs, as above, each divided by `divisor`.
template <class T, class Mapping>
inline void place_dense(const Geometry<Mapping>& geometry, const T* tensor, const u64* bitmap, i64 divisor,
                        T* const* part_outs) {
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    with_width(geometry.width, [&](auto width) {
        for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
            if constexpr (!Mapping::IS_IDENTITY)
                for (u64 i = 0; i < n; ++i) __builtin_prefetch(tensor + units[i] * width);
            T* out = part_outs[part] + first * width;
            for (u64 i = 0; i < n; ++i, out += width) divide_row(tensor + units[i] * width, width, by, out);
        });
    });
}

}  // namespace zenc
