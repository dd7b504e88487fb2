// Launchers: the complete segments of all parts become the result of the call.
#pragma once

#include "zenc_host/launch/rank.h"

namespace zenc {

static const Kernel EXPAND_DENSE("zenc_expand_dense");
static const Kernel MARK_FOUND("zenc_mark_found");
static const Kernel EXPAND_UNITS("zenc_expand_units");

// Every unit of call.dense_out, but those that are +0 already; nothing where `veto` is there, and is not 0.
inline void expand_dense(Queue& queue, const Segments& parts, const u64* veto) {
    const Call& call = queue.call;
    const u64 units = static_cast<u64>(call.units), bytes = static_cast<u64>(row_bytes(call));
    const u64 warps = ceil_divide(units, bytes >= WIDE_ROW ? WIDE_ROWS : 32);
    queue.launch(EXPAND_DENSE, Queue::blocks_for(32 * warps), 1, queue.partition, parts, row_bytes(call),
                 veto, keeps_absent(call), call.dense_out);
}

// Whether slots are the same numbers as units: they ascend from part to part.
inline bool slots_are_units(const Call& call) {
    return call.block == 0 && call.tables == nullptr;
}

// The units of all parts as one segment, marked and ranked. Contiguous units have no need of it.
inline Segment find_units(Queue& queue, const Segments& parts) {
    Segment found = {};
    const Call& call = queue.call;
    if (slots_are_units(call)) return found;
    found.slots = static_cast<u64>(call.units);
    found.count = static_cast<u64>(call.count_out);
    found.bitmap = queue.allocate_bitmap(words_of(found.slots));
    found.ranks = queue.allocate<u64>(ranks_of(found.slots));
    queue.clear(found.bitmap, 8 * words_of(found.slots));
    queue.launch(MARK_FOUND, blocks_for_rows(parts, 1), rows_for(parts.size()), queue.partition, parts,
                 found.bitmap);
    rank(queue, {found});
    return found;
}

// call.ids_out and call.values_out, of call.count_out units.
inline void expand_units(Queue& queue, const Segments& parts) {
    const Call& call = queue.call;
    if (call.count_out == 0) return;
    const Segments found = {find_units(queue, parts)};
    const bool by_parts = found[0].bitmap == nullptr;
    const Segments& rows = by_parts ? parts : found;
    queue.launch(EXPAND_UNITS, blocks_for_rows(rows, static_cast<u64>(row_bytes(call))),
                 rows_for(rows.size()), queue.partition, parts, found, row_bytes(call), call.ids_out,
                 call.values_out);
}

}  // namespace zenc
