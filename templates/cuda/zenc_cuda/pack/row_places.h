// Places of rows: the row of a marked slot is at the rank of its bit.
#pragma once

#include "zenc/geometry.h"
#include "zenc_cuda/primitives/slots.h"

namespace zenc {

// The parts of a gradient, [parts], whose ranks are slices of one array that begins at 0: rows are counted
// over all parts.
template <class Mapping>
struct Places {
    const Geometry<Mapping>& geometry;
    const Segment* parts;

    // The row of a marked slot, over all parts.
    ZENC_DEVICE u64 row_of(u64 slot) const {
        const u64 part = geometry.part_of(slot);
        const u64 local = slot - geometry.first_slot(part);
        const u64* const bitmap = parts[part].bitmap;
        return set_below(bitmap, parts[part].ranks, local / 64) +
               population(bitmap[local / 64] & low_mask(local % 64));
    }

    // The address of such a row, which is that of a slot of `part`.
    template <class T>
    ZENC_DEVICE T* address(u64 part, u64 row) const {
        return static_cast<T*>(parts[part].values) +
               (row - below_first(parts[part].ranks[0])) * geometry.width;
    }

    template <class T>
    ZENC_DEVICE T* address_of(u64 slot) const {
        return address<T>(geometry.part_of(slot), row_of(slot));
    }
};

}  // namespace zenc
