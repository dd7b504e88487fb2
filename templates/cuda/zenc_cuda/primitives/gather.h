// Gather: words from anywhere in the device's memory, copied to one buffer that is sent or read as a whole.
#pragma once

#include "zenc/control.h"
#include "zenc/ranks.h"
#include "zenc_cuda/primitives/platform.h"

namespace zenc {

// A word a thread. Reads at most 40 bytes for each and writes 8.
ZENC_DEVICE void gather(const Gathered* rows, i64 n) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const Gathered row = rows[i];
        *row.to = row.from == nullptr    ? reinterpret_cast<u64>(row.first)
                  : row.first == nullptr ? *row.from
                                         : set_between(*row.first, *row.from);
    }
}

}  // namespace zenc
