// Placing: the values of marked units, moved to where their parts keep them, in the order of their slots.
#pragma once

#include "zenc_cuda/pack/row_places.h"
#include "zenc_cuda/primitives/copy_rows.h"
#include "zenc_cuda/primitives/row_batches.h"

namespace zenc {

// Values [n, width] of units in slots [n], none of which comes twice. Each is divided by `divisor` first.
// Lane k of a warp finds the place of its row number k.
//
// Reads and writes each row once; reads 8 bytes of slots, one or two words of the bitmap and one of
// ranks a row.
template <class T, class Mapping>
ZENC_DEVICE void place_once(const Places<Mapping>& places, const i64* slots, i64 n, const T* values,
                            i64 divisor) {
    const u64 width = places.geometry.width;
    const u64 all = static_cast<u64>(n);
    const RowMover<T> rows(values, width, divisor);
    const u32 together = width * sizeof(T) >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < all; first += warps_of_row() * together) {
        const u32 number = static_cast<u32>(all - first < together ? all - first : together);
        T* mine = nullptr;
        if (lane() < number) mine = places.template address_of<T>(static_cast<u64>(slots[first + lane()]));
        rows.for_each(number, [&](u32 k) {
            T* const to = shuffle(mine, k);
            if (k < number) rows.move(values + (first + k) * width, to);
        });
    }
}

// The marked rows of tensor [units, width], each divided by `divisor`. Row y of the grid has part y.
//
// Reads and writes each of them once; reads the bitmap and ranks.
template <class T, class Mapping>
ZENC_DEVICE void place_dense(const Places<Mapping>& places, const T* tensor, i64 divisor) {
    const Geometry<Mapping>& geometry = places.geometry;
    const RowMover<T> rows(tensor, geometry.width, divisor);
    for_each_segment(static_cast<i64>(geometry.parts), [&](u64 part) {
        T* const values = static_cast<T*>(places.parts[part].values);
        RowBatches batch(places.parts[part], geometry.width * sizeof(T));
        while (batch.next()) {
            const T* mine = nullptr;
            if (batch.has_row()) {
                const u64 slot = geometry.first_slot(part) + 64 * batch.word + batch.bit;
                mine = tensor + geometry.mapping.unit(slot) * geometry.width;
            }
            rows.for_each(batch.rows, [&](u32 k) {
                const T* const from = shuffle(mine, k);
                if (k < batch.rows) rows.move(from, values + (batch.first + k) * geometry.width);
            });
        }
    });
}

}  // namespace zenc
