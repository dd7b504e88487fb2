// The mapping, one unit a thread. Reads 8 and writes 8 bytes a unit.
#pragma once

#include "zenc/geometry.h"
#include "zenc/hash.h"
#include "zenc_cuda/primitives/platform.h"

namespace zenc {

// out[i] = slot of units[i], for units in range.
template <class Mapping>
ZENC_DEVICE void slots_of_units(const Geometry<Mapping>& geometry, const i64* units, i64 n, i64* out) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        out[i] = static_cast<i64>(geometry.slot_of(static_cast<u64>(units[i])));
}

// out[i] = unit of slots[i], for slots that units have.
template <class Mapping>
ZENC_DEVICE void units_of_slots(const Geometry<Mapping>& geometry, const i64* slots, i64 n, i64* out) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        out[i] = static_cast<i64>(geometry.mapping.unit(static_cast<u64>(slots[i])));
}

}  // namespace zenc
