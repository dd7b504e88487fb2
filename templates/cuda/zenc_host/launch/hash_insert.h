// Launchers: the units of a call are marked by way of the memory of hierarchical hashing.
#pragma once

#include "zenc_host/launch/hash_tables.h"
#include "zenc_host/queue.h"

namespace zenc {

static const Kernel COLLECT_UNITS("zenc_collect_units");
static const Kernel MARK_COLLECTED("zenc_mark_collected");

// Sets the bits of the call's ids in the bitmap of all parts, which is cleared; slots [n] and *status are
// those of zenc_mark_units.
inline void collect_units(Queue& queue, u64* bitmap, i64* slots, u64* status) {
    const Call& call = queue.call;
    const u64 n = static_cast<u64>(call.n), rows = queue.partition.parts;
    const HashRows memory_of(call.r1, call.r2, n, rows);
    u64* const memory = queue.allocate<u64>(memory_of.words(rows));
    queue.clear(memory, 8 * memory_of.words(rows));
    queue.launch(COLLECT_UNITS, Queue::blocks_for(n), 1, queue.partition, call.ids, call.n, memory,
                 memory_of.parallel, memory_of.serial, bitmap, slots, status);
    queue.launch(MARK_COLLECTED, Queue::blocks_for(memory_of.cells()), rows_for(rows), queue.partition,
                 memory, memory_of.parallel, memory_of.serial, bitmap);
    queue.release(memory, memory_of.words(rows));
}

}  // namespace zenc
