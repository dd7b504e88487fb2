// Ownership under `balanced by holders`, computed alike on all ranks from the index sets of all: cuts, that
// is which slots of which part some ranks hold. It takes one synchronisation with the host, and brings all
// counts of the call.
#pragma once

#include "zenc/launch.h"
#include "zenc/loads.h"
#include "zenc_host/jobs.h"
#include "zenc_host/segment_kernels.h"
#include "zenc_host/segments.h"

namespace zenc {

static const Kernel CHOOSE_OWNERS("zenc_choose_owners");
static const Kernel DIGEST_OWNERS("zenc_digest_owners", Typed::NO, Ending::GATHER);
static const Kernel MARK_PARTS("zenc_mark_parts", Typed::NO, Ending::RANK);
static const Kernel SPLIT_ROWS("zenc_split_rows");
static const Kernel JOIN_UNITS("zenc_join_units");
static const Kernel JOIN_DENSE("zenc_join_dense");

// Who owns the units that somebody holds; on the device. All of it follows from the sets, which stay there,
// and the owners of the units of several holders.
struct Owners {
    Segments sets;
    IndexSets known = {};
    u64 blocks = 0;
    u64 room = 0;           // for so many of them, and their masks
    u8* masks = nullptr;    // of these units: a bit a rank; until release_masks
    u64* counts = nullptr;  // [ranks, ranks]: units of the first that the second owns
    u64* digest = nullptr;  // the same on ranks that chose alike

    // On the device: units of several holders, all together.
    const u64* all_of_several() const { return counts - 1; }
};

// Units that several ranks hold, at most.
inline u64 most_of_several(const Segments& sets) {
    u64 held = 0;
    for (const Segment& set : sets) held += set.count;
    if (sets.size() == 1) return 0;
    return held / 2 < sets[0].slots ? held / 2 : sets[0].slots;
}

// Grid and memory for tiles of all sets.
inline Owners prepare_owners(Queue& queue, const Segments& sets) {
    Owners made;
    made.known.ranks = sets.size();
    made.known.words =
        words_of_tile(made.known.ranks, sets[0].slots, static_cast<u64>(row_bytes(queue.call)));
    const u64 tiles = ceil_divide(words_of(sets[0].slots), made.known.words);
    made.blocks = Queue::blocks_for_tiles(tiles, 1);
    if (const u64 far = far_words(made.known.ranks)) {
        made.blocks = made.blocks < FAR_BLOCKS ? made.blocks : FAR_BLOCKS;
        made.known.far = queue.allocate<u64>(made.blocks * far);
    }
    made.known.starts = queue.allocate<u64>(made.known.ranks * tiles);
    made.room = most_of_several(sets);
    made.masks = queue.allocate<u8>(mask_bytes(made.known.ranks) * made.room);
    made.known.owners =
        queue.allocate<u16>(made.room);  // in front of the masks: what is left of both is one room
    return made;
}

// From the sets of all ranks, whose counts are known, and which stay where they are.
inline Owners choose_owners(Queue& queue, const Segments& sets) {
    Owners made = prepare_owners(queue, sets);
    const u64 ranks = made.known.ranks, words = made.known.words,
              tiles = ceil_divide(words_of(sets[0].slots), words);
    const u64 numbers = ranks * tiles;
    const u64 cleared = (tiles + 1) + ranks * ranks + 1 + ranks + (1 + scan_words(numbers)) + (2 + tiles);
    made.known.several = queue.allocate<u64>(cleared);
    queue.clear(made.known.several, 8 * cleared);
    made.counts = made.known.several + tiles + 1;
    made.digest = made.counts + ranks * ranks;
    u64* const alone = made.digest + 1;
    u64* const scanning = alone + ranks;
    u64* const choosing = scanning + 1 + scan_words(numbers);
    Load* const loads = queue.allocate<Load>(ranks);
    made.sets = sets;
    queue.launch(CHOOSE_OWNERS, made.blocks, 1, sets, made.known, choosing, made.masks, alone, loads,
                 made.counts);
    queue.launch(DIGEST_OWNERS, made.blocks, 1, sets, made.known, made.masks, made.digest, made.counts,
                 scanning);
    return made;
}

// No bitmap is made of them any more.
inline void release_masks(Queue& queue, Owners& chosen) {
    queue.release(chosen.masks, mask_bytes(chosen.known.ranks) * chosen.room);
    chosen.masks = nullptr;
}

// There are so many owners: the rest of their room is not needed.
inline void release_rest(Queue& queue, const Owners& chosen, u64 owners) {
    const u64 used = aligned(sizeof(u16) * owners), all = Queue::whole(sizeof(u16) * chosen.room);
    if (used < all) queue.release(Room{reinterpret_cast<u8*>(chosen.known.owners) + used, all - used});
}

// The bitmap of targets[i], and its ranks: the slots of its part that rank of[i] holds. Of each rank and part
// there is one at most.
inline void mark_parts(Queue& queue, const Segments& targets, const std::vector<u64>& of,
                       const Owners& chosen) {
    if (targets.empty()) return;
    std::vector<u64> cuts(chosen.known.ranks * chosen.known.ranks, ~0ULL);
    for (u64 i = 0; i < targets.size(); ++i) cuts[of[i] * chosen.known.ranks + targets[i].part] = i;
    queue.launch(MARK_PARTS, chosen.blocks, 1, chosen.sets, chosen.known, chosen.masks, cuts, targets,
                 number_of(targets), queue.allocate_cleared<u64>(2));
    rank(queue, targets);
}

// The values of targets[part] = the rows of rank `own` in its slots.
inline void split_rows(Queue& queue, const Segments& targets, i64 own, const Owners& chosen) {
    queue.launch(SPLIT_ROWS, chosen.blocks, 1, chosen.sets, chosen.known, own, targets,
                 row_bytes(queue.call));
}

// Writes call.ids_out and call.values_out: all units, ascending, from the complete parts.
inline void join_units(Queue& queue, const Owners& chosen, const Segments& parts) {
    const Call& call = queue.call;
    queue.launch(JOIN_UNITS, chosen.blocks, 1, chosen.sets, chosen.known, parts, row_bytes(call),
                 call.ids_out, call.values_out);
}

// Writes call.dense_out, but for what is +0 already.
inline void join_dense(Queue& queue, const Owners& chosen, const Segments& parts) {
    const Call& call = queue.call;
    queue.launch(JOIN_DENSE, chosen.blocks, 1, chosen.sets, chosen.known, parts, row_bytes(call),
                 keeps_absent(call), call.dense_out);
}

class Agreement {
public:
    Agreement(Queue& queue, Communicator& group, SegmentJobs& workshop, const SlotCut* cuts, i64 n,
              const i64* pieces)
        : queue_(queue),
          group_(group),
          workshop_(workshop),
          cuts_(cuts, cuts + n),
          pieces_(pieces),
          held_(cuts_.size()),
          owned_(static_cast<u64>(group.size)) {}

    // From the sets of all ranks, which stay where they are. Fails unless the ranks in `peers` have chosen
    // the same owners.
    void reach(i64 step, const Segments& sets, Numbers peers) {
        owners_ = choose_owners(queue_, sets);
        learn(step, peers);
        if (!queue_.ok()) return;
        for (u64 i = 0; i < cuts_.size(); ++i) {
            held_[i].at.part = static_cast<u64>(cuts_[i].part);
            held_[i].at.slots = owned_[held_[i].at.part];
        }
        mark_those_of_one();
        if (!queue_.ok()) return;
        release_masks(queue_, owners_);
        release_rest(queue_, owners_, several_);
        mark_those_of_several(step);
    }

    // With bitmap and ranks if it is marked.
    const Segment& cut(i64 number) const { return held_[static_cast<u64>(number)].at; }

    u64 slots(i64 part) const { return owned_[static_cast<u64>(part)]; }

    u64 present() const {
        u64 units = 0;
        for (const u64 each : owned_) units += each;
        return units;
    }

    // This rank's gradient becomes its rows of all parts.
    void split(const Segments& targets) const { split_rows(queue_, targets, group_.rank, owners_); }

    // The complete parts become the result that the call asks for.
    void join(const Segments& parts) const {
        if (queue_.call.dense_out != nullptr)
            join_dense(queue_, owners_, parts);
        else
            join_units(queue_, owners_, parts);
    }

    // The bytes of an exchange of digests with one peer.
    static constexpr u64 DIGEST_BYTES = 8;

private:
    u64 count_of(i64 rank, i64 part) const { return static_cast<u64>(rank * group_.size + part); }

    // Brings to the host: units of each owner, counts of the cuts of one rank, and whether peers agree.
    void learn(i64 step, Numbers peers) {
        std::vector<u64> theirs(peers.size());
        u64 mine = 0;
        std::vector<Wanted> wanted;
        for (i64 part = 0; part < group_.size; ++part)
            wanted.push_back(
                {owners_.counts + count_of(part, part), nullptr, &owned_[static_cast<u64>(part)]});
        for (u64 i = 0; i < cuts_.size(); ++i)
            if (cuts_[i].rank >= 0)
                wanted.push_back(
                    {owners_.counts + count_of(cuts_[i].rank, cuts_[i].part), nullptr, &held_[i].at.count});
        wanted.push_back({owners_.digest, nullptr, &mine});
        wanted.push_back({owners_.all_of_several(), nullptr, &several_});
        workshop_.cross(step, {}, {}, wanted, {owners_.digest, peers, theirs.data()});
        for (u64 i = 0; i < peers.size() && queue_.ok(); ++i)
            if (theirs[i] != mine)
                fail(queue_.call, DIFFERENT_CALLS, peers.first[i],
                     "it has chosen other owners for the units of this call");
    }

    void mark_those_of_one() {
        Several marked;
        std::vector<u64> of;
        Segments targets;
        for (u64 i = 0; i < cuts_.size(); ++i) {
            if (cuts_[i].rank < 0 || cuts_[i].marked == 0) continue;
            marked.push_back(&held_[i]);
            of.push_back(static_cast<u64>(cuts_[i].rank));
        }
        make_marks(queue_, marked);
        for (const Held* held : marked) targets.push_back(held->at);
        if (queue_.ok()) mark_parts(queue_, targets, of, owners_);
    }

    // Only schedules that sum on the way have such cuts, and they cross to the host once more.
    void mark_those_of_several(i64 step) {
        Several marked;
        Segments targets, from;
        std::vector<Pieces> pieces;
        for (u64 i = 0; i < cuts_.size(); ++i) {
            if (cuts_[i].rank >= 0) continue;
            marked.push_back(&held_[i]);
            pieces.push_back({from.size(), static_cast<u64>(cuts_[i].number)});
            for (i64 k = 0; k < cuts_[i].number; ++k) from.push_back(cut(pieces_[cuts_[i].first + k]));
        }
        if (marked.empty()) return;
        make_marks(queue_, marked);
        for (const Held* held : marked) targets.push_back(held->at);
        if (!queue_.ok()) return;
        sum(queue_, targets, pieces, from);
        std::vector<Wanted> wanted;
        for (Held* held : marked)
            wanted.push_back(
                {held->at.ranks + ranks_of(held->at.slots) - 1, held->at.ranks, &held->at.count});
        workshop_.cross(step, {}, {}, wanted);
    }

    Queue& queue_;
    Communicator& group_;
    SegmentJobs& workshop_;
    const std::vector<SlotCut> cuts_;
    const i64* const pieces_;
    std::vector<Held> held_;  // a segment without values for each cut
    std::vector<u64> owned_;  // units of each rank: the slots of its part
    u64 several_ = 0;         // units of several holders
    Owners owners_;
};

}  // namespace zenc
