// Placing: the values of marked units, moved to where their parts keep them, in the order of their slots.
#pragma once

#include "zenc_cuda/pack/row_places.h"
#include "zenc_cuda/primitives/copy_rows.h"
#include "zenc_cuda/primitives/row_batches.h"

namespace zenc {

// Values [n, width] of units in slots [n], none of which comes twice. Each is divided by `divisor` first.
// Lane k of a warp finds the place of row k.
//
// Reads and writes each row once; reads 8 bytes of slots, one or two words of the bitmap and one of
// ranks a row.
template <class T, class Mapping>
ZENC_DEVICE void place_once(const Places<Mapping>& places, const i64* slots, i64 n, const T* values,
                            i64 divisor) {
    const u64 width = places.geometry.width, all = static_cast<u64>(n);
    const u32 together = width * sizeof(T) >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < all; first += warps_of_row() * together) {
        const u32 rows = static_cast<u32>(all - first < together ? all - first : together);
        T* to = nullptr;
        if (lane() < rows) to = places.template address_of<T>(static_cast<u64>(slots[first + lane()]));
        divide_rows(values + (first + lane()) * width, rows, width, divisor, to);
    }
}

// The marked rows of tensor [units, width], each divided by `divisor`. Row y of the grid has part y.
//
// Reads and writes each of them once; reads the bitmap and ranks.
template <class T, class Mapping>
ZENC_DEVICE void place_dense(const Places<Mapping>& places, const T* tensor, i64 divisor) {
    const Geometry<Mapping>& geometry = places.geometry;
    const u64 width = geometry.width;
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        T* const values = static_cast<T*>(places.parts[part].values);
        RowBatches batch(places.parts[part], width * sizeof(T));
        while (batch.next()) {
            const T* from = nullptr;
            if (batch.has_row()) {
                const u64 slot = geometry.first_slot(part) + 64 * batch.word + batch.bit;
                from = tensor + geometry.mapping.unit(slot) * width;
            }
            divide_rows(from, batch.rows, width, divisor, values + (batch.first + lane()) * width);
        }
    });
}

}  // namespace zenc
