// Launchers: what ranks agree on under `balanced by holders`, and rows cut and joined by it. See
// zenc_cuda/owners.h and zenc_cuda/holders.h.
#pragma once

#include "zenc/loads.h"
#include "zenc_host/group.h"
#include "zenc_host/held.h"

namespace zenc {

static const Kernel FIND_HOLDERS("zenc_find_holders");
static const Kernel GIVE_ALONE("zenc_give_alone");
static const Kernel CHOOSE_OWNERS("zenc_choose_owners");
static const Kernel DIGEST_OWNERS("zenc_digest_owners");
static const Kernel COUNT_PARTS("zenc_count_parts");
static const Kernel OWNER_KEYS("zenc_owner_keys");
static const Kernel PLACE_SLOTS("zenc_place_slots");
static const Kernel MARK_PARTS("zenc_mark_parts");
static const Kernel SPLIT_ROWS("zenc_split_rows");
static const Kernel JOIN_UNITS("zenc_join_units");
static const Kernel JOIN_DENSE("zenc_join_dense");

constexpr u64 OWNER_SHIFT = 48;  // of the owner in a key, behind the unit

// The owners of all units that somebody holds; on the device.
struct Owners {
    Held any = {};  // the units, ranked
    const Segment* any_table = nullptr;
    u64 room = 0;  // for so many
    u16* owners = nullptr;
    u64* counts = nullptr;  // [ranks, ranks]: units of the first that the second owns
    u64* digest = nullptr;  // the same on ranks that chose alike
};

// From the sets of all ranks, with their ranks and counts.
inline Owners choose_owners(Queue& queue, const Segments& sets) {
    const u64 ranks = sets.size(), units = sets[0].slots;
    u64 most_units = 0;
    for (const Segment& set : sets) most_units += set.count;
    if (most_units > units) most_units = units;
    Owners made;
    made.room = most_units;
    Held shared;
    made.any.at.slots = shared.at.slots = units;
    make_marks(queue, {&made.any, &shared});
    const Segments found = {made.any.at, shared.at};
    u64* const counters = queue.allocate<u64>(ranks * ranks + 1 + ranks);
    queue.clear(counters, 8 * (ranks * ranks + 1 + ranks));
    made.counts = counters;
    made.digest = counters + ranks * ranks;
    u64* const alone = made.digest + 1;
    u64* const owned = queue.allocate<u64>(ranks);
    u64* const several = queue.allocate<u64>(most_units);
    Load* const loads = queue.allocate<Load>(ranks);
    made.owners = queue.allocate<u16>(most_units);
    const auto [table, found_table] = upload_all(queue, sets, found);
    made.any_table = found_table;
    const u64 blocks = Queue::blocks_for(words_of(units));
    queue.launch(FIND_HOLDERS, blocks, 1, table, ranks, found_table, alone);
    rank(queue, found);
    queue.launch(GIVE_ALONE, blocks, 1, table, ranks, found_table, made.owners, several);
    queue.launch(CHOOSE_OWNERS, 1, 1, table, ranks, found_table, several, alone, loads, made.owners, owned);
    queue.launch(DIGEST_OWNERS, blocks, 1, found_table, ranks, made.owners, made.digest);
    queue.launch(COUNT_PARTS, blocks, rows_for(ranks), table, ranks, found_table, made.owners, made.counts);
    release(queue, shared);
    queue.release(several, most_units);
    return made;
}

// Where the units of all parts are; on the device.
struct Listed {
    u64* sorted = nullptr;        // [present]: unit by unit of each part
    const u64* starts = nullptr;  // [ranks]: where those of each part begin
    u64* places = nullptr;        // [present]: the part and the slot of each unit
};

// `owned` are the units of each rank. Their owners are not used any more.
inline Listed list_units(Queue& queue, const Owners& chosen, const std::vector<u64>& owned) {
    std::vector<u64> starts;
    u64 present = 0;
    for (const u64 units : owned) {
        starts.push_back(present);
        present += units;
    }
    const u64 words = words_of(chosen.any.at.slots);
    Sorter sorter(queue, present, OWNER_SHIFT, owned.size());
    queue.launch(OWNER_KEYS, Queue::blocks_for(words), 1, chosen.any_table, chosen.owners, sorter.keys());
    queue.release(chosen.owners, chosen.room);
    if (present != 0) sorter.sort();
    sorter.release();
    const Listed made = {sorter.keys(), queue.upload(starts.data(), starts.size()),
                         queue.allocate<u64>(present)};
    queue.launch(PLACE_SLOTS, Queue::blocks_for(present), 1, made.sorted, present, made.starts,
                 chosen.any_table, made.places);
    return made;
}

// The bitmap of targets[i], and its ranks: the slots of its part that the rank with the set of[i] holds.
inline void mark_parts(Queue& queue, const Segments& targets, const Segments& of, const Listed& listed) {
    if (targets.empty()) return;
    const auto [table, sets] = upload_all(queue, targets, of);
    queue.launch(MARK_PARTS, Queue::blocks_for(32 * most_words(targets)), rows_for(targets.size()), table,
                 number_of(targets), sets, listed.sorted, listed.starts);
    rank(queue, targets);
}

// The values of targets[i] = the rows of `own` in its slots.
inline void split_rows(Queue& queue, const Segments& targets, const Segment& own, const Listed& listed) {
    const u64 blocks = blocks_for_rows(targets, static_cast<u64>(row_bytes(queue.call)));
    const auto [table, set] = upload_all(queue, targets, Segments{own});
    queue.launch(SPLIT_ROWS, blocks, rows_for(targets.size()), table, number_of(targets), set, listed.sorted,
                 listed.starts, row_bytes(queue.call));
}

// Writes call.ids_out and call.values_out: all units, ascending, from the complete parts.
inline void join_units(Queue& queue, const Owners& chosen, const Listed& listed, const Segments& parts) {
    const Call& call = queue.call;
    Segment any = chosen.any.at;
    any.count = static_cast<u64>(call.count_out);
    const u64 blocks = blocks_for_rows({any}, static_cast<u64>(row_bytes(call)));
    const auto [table] = upload_all(queue, parts);
    queue.launch(JOIN_UNITS, blocks, 1, chosen.any_table, listed.places, table, row_bytes(call), call.ids_out,
                 call.values_out);
}

// Writes call.dense_out, every byte of it.
inline void join_dense(Queue& queue, const Owners& chosen, const Listed& listed, const Segments& parts) {
    const Call& call = queue.call;
    const u64 together = static_cast<u64>(row_bytes(call)) >= WIDE_ROW ? WIDE_ROWS : 32;
    const u64 blocks = Queue::blocks_for(32 * ceil_divide(chosen.any.at.slots, together));
    const auto [table] = upload_all(queue, parts);
    queue.launch(JOIN_DENSE, blocks, 1, chosen.any_table, listed.places, table, row_bytes(call),
                 call.dense_out);
}

}  // namespace zenc
