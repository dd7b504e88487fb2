// The mapping, one unit a thread.
#pragma once

#include "zenc/hash.h"
#include "zenc/permutation.h"
#include "zenc_cuda/platform.h"

namespace zenc {

// out[i] = slot of units[i], for units in range.
template <class Mapping>
ZENC_DEVICE void slots_of_units(const Mapping& mapping, const i64* units, i64 n, i64* out) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const u64 unit = static_cast<u64>(units[i]);
        if constexpr (Mapping::HAS_TABLES)
            out[i] = static_cast<i64>(mapping.slot(mapping.part(unit), unit));
        else
            out[i] = static_cast<i64>(mapping.slot(unit));
    }
}

}  // namespace zenc
