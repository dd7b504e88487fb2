// Placing: the values of marked units, moved to where their parts keep them, in the order of their slots. The
// rank of a slot's bit is the place of its row (docs/adr/0004-bitmap-ranking.md): no sort, no hash table, no
// collision. Every part has an address of its own: the values are written straight into messages.
#pragma once

#include "zenc_cpu/primitives/element_blocks.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// The places of the marked slots of a call: its bitmap, its ranks, and for each part where its rows begin,
// less the rows of all parts before it. A row that is counted over all parts finds its place by one addition.
// These origins are integers, since such an address may lie outside of every array.
template <class Mapping>
class Places {
public:
    template <class T>
    Places(const Geometry<Mapping>& geometry, const u64* bitmap, const u64* before, T* const* part_outs)
        : geometry_(geometry), bitmap_(bitmap), before_(before), origins_(geometry.parts) {
        if (failed() || geometry.part_words == 0) return;
        const u64 row_bytes = geometry.width * sizeof(T);
        for (u64 part = 0; part < geometry.parts; ++part)
            origins_[part] =
                reinterpret_cast<u64>(part_outs[part]) - before[part * geometry.part_words] * row_bytes;
    }

    bool failed() const { return origins_.failed(); }

    // The rows of n <= BATCH slots among all marked units, and the origins of their parts. Returns false if a
    // slot is out of range or has no bit.
    ZENC_SHARED_CODE bool find(const i64* slots, u64 n, u64* __restrict rows, u64* __restrict origins) const {
        const u64* const found = reinterpret_cast<const u64*>(slots);  // a negative slot is a huge one
        u64 bits[BATCH];
        u64 greatest = 0;
        for (u64 i = 0; i < n; ++i) greatest = greatest < found[i] ? found[i] : greatest;
        if (greatest >= geometry_.end_of_slots()) return false;
        locate(geometry_, found, n, origins, bits);
        u64 marked = ~0ULL;
        for (u64 i = 0; i < n; ++i) {
            const u64 below = bitmap_[bits[i] / 64]
                              << (63 - bits[i] % 64);  // the bit itself comes to the top
            marked &= below;
            rows[i] = before_[bits[i] / 64] + population(below) - 1;
        }
        for (u64 i = 0; i < n; ++i) origins[i] = origins_[origins[i]];
        return marked >> 63 != 0;
    }

private:
    const Geometry<Mapping>& geometry_;
    const u64* bitmap_;
    const u64* before_;
    Scratch<u64> origins_;
};

template <class T>
inline T* row_at(u64 origin, u64 row, u64 width) {
    return reinterpret_cast<T*>(origin + row * width * sizeof(T));
}

// No unit comes twice: every row is a copy.
template <class T, class Width, class Mapping>
inline i64 place_once(const Places<Mapping>& places, Width width, const i64* slots, u64 n, const T* values,
                      typename Type<T>::Sum divisor) {
    u64 rows[BATCH];
    u64 origins[BATCH];
    for (u64 first = 0; first < n; first += BATCH) {
        const u64 size = n - first < BATCH ? n - first : BATCH;
        if (!places.find(slots + first, size, rows, origins)) return NOT_MARKED;
        const T* from = values + first * width;
        for (u64 i = 0; i < size; ++i, from += width)
            divide_row(from, width, divisor, row_at<T>(origins[i], rows[i], width));
    }
    return 0;
}

// Groups n inputs by row, by counting: inputs [n] are their numbers, row by row, each row's in the order of
// the input, and ends [distinct + 1] where they end. origin_of [distinct] are the rows' origins. `ends` is
// cleared.
template <class Mapping>
ZENC_SHARED_CODE inline i64 group(const Places<Mapping>& places, const i64* slots, u64 n, u64 distinct,
                                  u64* ends, u64* origin_of, u64* inputs) {
    const Scratch<u64> row_of(n);
    if (row_of.failed()) return NO_MEMORY;
    u64 origins[BATCH];
    for (u64 first = 0; first < n; first += BATCH) {
        const u64 size = n - first < BATCH ? n - first : BATCH;
        u64* const rows = row_of.get() + first;
        if (!places.find(slots + first, size, rows, origins)) return NOT_MARKED;
        for (u64 i = 0; i < size; ++i) {
            if (rows[i] >= distinct) return NOT_MARKED;
            origin_of[rows[i]] = origins[i];
            ++ends[rows[i] + 1];
        }
    }
    for (u64 row = 0; row < distinct; ++row) {
        if (ends[row + 1] == 0) return WRONG_COUNT;
        ends[row + 1] += ends[row];
    }
    for (u64 i = 0; i < n; ++i) inputs[ends[row_of[i]]++] = i;
    return 0;
}

// Units come several times: every row is the sum of a group, in the order of the input.
template <class T, class Mapping>
inline i64 place_summed(const Places<Mapping>& places, u64 width, const i64* slots, u64 n, const T* values,
                        u64 distinct, typename Type<T>::Sum divisor) {
    const Scratch<u64> ends(distinct + 1);
    const Scratch<u64> origin_of(distinct);
    const Scratch<u64> inputs(n);
    const Scratch<const T*> from(n);
    if (ends.failed() || origin_of.failed() || inputs.failed() || from.failed()) return NO_MEMORY;
    const i64 status = group(places, slots, n, distinct, ends.get(), origin_of.get(), inputs.get());
    if (status < 0) return status;
    for (u64 i = 0; i < n; ++i) from[i] = values + inputs[i] * width;
    const auto sum = divisor == 1 ? sum_rows<false, T> : sum_rows<true, T>;
    for (u64 row = 0, start = 0; row < distinct; start = ends[row++])
        sum(from.get() + start, ends[row] - start, width, divisor, row_at<T>(origin_of[row], row, width));
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
    const Places<Mapping> places(geometry, bitmap, before, part_outs);
    if (places.failed()) return NO_MEMORY;
    if (n != distinct) return place_summed(places, geometry.width, slots, n, values, distinct, by);
    return with_width(geometry.width,
                      [&](auto width) { return place_once(places, width, slots, n, values, by); });
}

// The marked rows of a dense tensor [units, width] -> part_outs, as above, each divided by `divisor`.
template <class T, class Mapping>
ZENC_SHARED_CODE inline void place_marked(const Geometry<Mapping>& geometry, const T* tensor,
                                          const u64* bitmap, typename Type<T>::Sum divisor,
                                          T* const* part_outs) {
    const u64 width = geometry.width;
    for_each_batch(geometry, bitmap, [&](u64 part, const u64* units, u64 n, u64 first) {
        if constexpr (!Mapping::IS_IDENTITY)
            for (u64 i = 0; i < n; ++i) __builtin_prefetch(tensor + units[i] * width);
        T* out = part_outs[part] + first * width;
        for (u64 i = 0; i < n; ++i, out += width) divide_row(tensor + units[i] * width, width, divisor, out);
    });
}

// Single elements, block by block.
template <class T, class Mapping>
ZENC_SHARED_CODE inline void place_blocks(const Geometry<Mapping>& geometry, const T* tensor,
                                          const u64* bitmap, typename Type<T>::Sum divisor,
                                          T* const* part_outs) {
    with_block(geometry, [&](auto kind) {
        using Block = decltype(kind);
        for (u64 part = 0; part < geometry.parts; ++part) {
            T* out = part_outs[part];
            const auto place = [&](const u64* units, const Block* blocks, u64 n) {
                for (u64 i = 0; i < n; ++i) __builtin_prefetch(tensor + units[i]);
                T* const start = out;
                T* end = out;  // local: no write to the output can change it
                for (u64 i = 0; i < n; end += population(blocks[i++]))
                    keep_values(tensor + units[i], blocks[i], end);
                if (divisor != 1) divide_values(start, static_cast<u64>(end - start), divisor, start);
                out = end;
            };
            for_filled_blocks<Block>(geometry, part, bitmap, place);
        }
    });
}

template <class T, class Mapping>
inline void place_dense(const Geometry<Mapping>& geometry, const T* tensor, const u64* bitmap, i64 divisor,
                        T* const* part_outs) {
    const auto by = static_cast<typename Type<T>::Sum>(divisor);
    if constexpr (BY_BLOCKS<Mapping>)
        if (geometry.width == 1) return place_blocks(geometry, tensor, bitmap, by, part_outs);
    place_marked(geometry, tensor, bitmap, by, part_outs);
}

}  // namespace zenc
