// Ownership under `balanced by holders`, computed alike on all ranks from the index sets of all: cuts, that
// is which slots of which part some ranks hold. It takes one synchronisation with the host, and brings all
// counts of the call.
#pragma once

#include <algorithm>

#include "zenc/loads.h"
#include "zenc_host/jobs.h"

namespace zenc {

static const Kernel CHOOSE_OWNERS("zenc_choose_owners");
static const Kernel DIGEST_OWNERS("zenc_digest_owners", Typed::NO, Ending::GATHER);
static const Kernel MARK_PARTS("zenc_mark_parts", Typed::NO, Ending::RANK);
static const Kernel SPLIT_ROWS("zenc_split_rows");
static const Kernel JOIN_UNITS("zenc_join_units");
static const Kernel JOIN_DENSE("zenc_join_dense");

// The agreement of ranks: who owns the units that somebody holds. Calls whose units were announced share it,
// and the device memory that it points to.
struct Agreed {
    Segments sets;  // of all ranks, where they came; with the owners all follows from them
    IndexSets known = {};
    u64 blocks = 0;
    std::vector<Held> held;    // a segment without values for each cut
    std::vector<i64> unheard;  // peers whose digests have not been asked for
    u64* digest = nullptr;     // the same on ranks that chose alike
    u64 mine = 0;
};

class Agreement {
public:
    Agreement(Queue& queue, Communicator& group, SegmentJobs& workshop, const SlotCut* cuts, i64 n,
              const i64* pieces)
        : queue_(queue),
          group_(group),
          workshop_(workshop),
          cuts_(cuts, cuts + n),
          pieces_(pieces),
          owned_(static_cast<u64>(group.size)) {
        of_.held.resize(cuts_.size());
    }

    const Agreed& agreed() const { return of_; }

    // Goes on from the agreement of an announce.
    void go_on_from(const Agreed& agreed) {
        of_ = agreed;
        theirs_ = queue_.allocate<u64>(of_.unheard.size());
    }

    // Reaches an agreement from the sets of all ranks, which stay; `peers` compare theirs later on.
    void reach(i64 step, const Segments& sets, Numbers peers) {
        of_.sets = sets;
        make_room();
        choose();
        of_.unheard.assign(peers.begin(), peers.end());
        theirs_ = queue_.allocate<u64>(peers.size());
        learn(step);
        if (!queue_.ok()) return;
        for (u64 i = 0; i < cuts_.size(); ++i) {
            of_.held[i].at.part = static_cast<u64>(cuts_[i].part);
            of_.held[i].at.slots = owned_[of_.held[i].at.part];
        }
        mark_those_of_one();
        if (!queue_.ok()) return;
        release_rest();
        mark_those_of_several(step);
    }

    // Adds digests to the first messages between this rank and a peer: the next crossing fails if these
    // differ.
    void compare(Exchange& messages, i64 peer) {
        const auto found = std::find(of_.unheard.begin(), of_.unheard.end(), peer);
        if (found == of_.unheard.end() || !queue_.ok()) return;
        of_.unheard.erase(found);
        messages.send(peer, of_.digest, DIGEST_BYTES);
        messages.receive(peer, theirs_, DIGEST_BYTES);
        workshop_.watch({theirs_++, of_.mine, DIFFERENT_CALLS, peer, -1});
    }

    // The segment of a cut; it has bitmap and ranks if it is marked.
    const Segment& cut(i64 number) const { return of_.held[static_cast<u64>(number)].at; }

    // targets[part].values = this rank's `rows` in its slots of the part.
    void split(const Segment& rows, const Segments& targets) {
        of_.sets[static_cast<u64>(group_.rank)].values = rows.values;
        queue_.launch(SPLIT_ROWS, of_.blocks, 1, of_.sets, of_.known, group_.rank, targets, queue_.row_bytes);
    }

    // Makes the result that the call asks for from complete parts: a list of all units, ascending, or a dense
    // tensor, of which units that are +0 already are not written.
    void join(const Segments& parts) const {
        const Call& call = queue_.call;
        if (call.dense_out != nullptr)
            queue_.launch(JOIN_DENSE, of_.blocks, 1, of_.sets, of_.known, parts, queue_.row_bytes,
                          keeps_absent(call), call.dense_out);
        else
            queue_.launch(JOIN_UNITS, of_.blocks, 1, of_.sets, of_.known, parts, queue_.row_bytes,
                          call.ids_out, call.values_out);
    }

    // The bytes of a digest, sent to each peer.
    static constexpr u64 DIGEST_BYTES = 8;

private:
    // On the device: the number of units of a rank that the owner of a part owns.
    const u64* owned_of(i64 rank, i64 part) const { return counts_ + rank * group_.size + part; }

    // The greatest number of units that several ranks can hold.
    u64 most_of_several() const {
        u64 held = 0;
        for (const Segment& set : of_.sets) held += set.count;
        if (of_.sets.size() == 1) return 0;
        return held / 2 < of_.sets[0].slots ? held / 2 : of_.sets[0].slots;
    }

    // Makes room for the tiles of all sets, and chooses the grid.
    void make_room() {
        const u64 ranks = of_.known.ranks = of_.sets.size(), units = of_.sets[0].slots;
        of_.known.words = words_of_tile(ranks, units, queue_.row_bytes);
        tiles_ = ceil_divide(words_of(units), of_.known.words);
        of_.blocks = Queue::blocks_for_tiles(tiles_, 1);
        if (const u64 far = far_words(ranks)) {
            of_.blocks = of_.blocks < FAR_BLOCKS ? of_.blocks : FAR_BLOCKS;
            of_.known.far = queue_.allocate<u64>(of_.blocks * far);
        }
        of_.known.starts = queue_.allocate<u64>(ranks * tiles_);
        room_ = most_of_several();
        masks_ = queue_.allocate<u8>(mask_bytes(ranks) * room_);
        of_.known.owners =
            queue_.allocate<u16>(room_);  // in front of the masks: what is left of both is one room
    }

    void choose() {
        const u64 ranks = of_.known.ranks;
        const u64 cleared =
            (tiles_ + 1) + ranks * ranks + 1 + ranks + (1 + scan_words(ranks * tiles_)) + (2 + tiles_);
        of_.known.several = queue_.allocate<u64>(cleared);
        queue_.clear(of_.known.several, 8 * cleared);
        counts_ = of_.known.several + tiles_ + 1;
        of_.digest = counts_ + ranks * ranks;
        u64* const alone = of_.digest + 1;
        u64* const scanning = alone + ranks;
        u64* const choosing = scanning + 1 + scan_words(ranks * tiles_);
        queue_.launch(CHOOSE_OWNERS, of_.blocks, 1, of_.sets, of_.known, choosing, masks_, alone,
                      queue_.allocate<Load>(2 * ranks), counts_);
        queue_.launch(DIGEST_OWNERS, of_.blocks, 1, of_.sets, of_.known, masks_, of_.digest, counts_,
                      scanning);
    }

    // Brings to the host: units of each owner, counts of the cuts of one rank, and the digest.
    void learn(i64 step) {
        Wanted wanted;
        for (i64 part = 0; part < group_.size; ++part)
            wanted.push_back({owned_of(part, part), nullptr, &owned_[static_cast<u64>(part)]});
        for (u64 i = 0; i < cuts_.size(); ++i)
            if (cuts_[i].rank >= 0)
                wanted.push_back({owned_of(cuts_[i].rank, cuts_[i].part), nullptr, &of_.held[i].at.count});
        wanted.push_back({of_.digest, nullptr, &of_.mine});
        wanted.push_back({counts_ - 1, nullptr, &several_});
        workshop_.cross(step, {}, {}, wanted);
    }

    // Makes bitmaps and ranks of cuts of one rank: the slots of a part that the rank holds.
    void mark_those_of_one() {
        Several marked;
        std::vector<u64> numbers(of_.known.ranks * of_.known.ranks, ~0ULL);
        for (u64 i = 0; i < cuts_.size(); ++i) {
            if (cuts_[i].rank < 0 || cuts_[i].marked == 0) continue;
            numbers[static_cast<u64>(cuts_[i].rank * group_.size + cuts_[i].part)] = marked.size();
            marked.push_back(&of_.held[i]);
        }
        if (marked.empty()) return;
        make_marks(queue_, marked);
        if (!queue_.ok()) return;
        const Segments targets = segments_of(marked);
        queue_.launch(MARK_PARTS, of_.blocks, 1, of_.sets, of_.known, masks_, numbers, targets,
                      number_of(targets), queue_.allocate_cleared<u64>(2));
        rank(queue_, targets);
    }

    // Releases masks, of which no bitmap is made any more, and the room for more owners than there are.
    void release_rest() {
        queue_.release(masks_, mask_bytes(of_.known.ranks) * room_);
        const u64 used = aligned(sizeof(u16) * several_), all = Queue::whole(sizeof(u16) * room_);
        if (used < all) queue_.release(Room{reinterpret_cast<u8*>(of_.known.owners) + used, all - used});
    }

    // Makes bitmaps and ranks of cuts of several ranks. Only schedules that sum on the way have such cuts,
    // and their counts cross to the host once more.
    void mark_those_of_several(i64 step) {
        Several marked;
        for (u64 i = 0; i < cuts_.size(); ++i)
            if (cuts_[i].rank < 0) marked.push_back(&of_.held[i]);
        if (marked.empty()) return;
        make_marks(queue_, marked);
        if (!queue_.ok()) return;
        Made unions;
        for (u64 i = 0; i < cuts_.size(); ++i) {
            if (cuts_[i].rank >= 0) continue;
            unions.add(of_.held[i].at, static_cast<u64>(cuts_[i].number));
            for (i64 k = 0; k < cuts_[i].number; ++k) unions.from.push_back(cut(pieces_[cuts_[i].first + k]));
        }
        sum(queue_, unions);
        Wanted wanted;
        for (Held* held : marked) wanted.push_back(count_of(held->at, &held->at.count));
        workshop_.cross(step, {}, {}, wanted);
    }

    Queue& queue_;
    Communicator& group_;
    SegmentJobs& workshop_;
    const std::vector<SlotCut> cuts_;
    const i64* const pieces_;
    Agreed of_;
    std::vector<u64> owned_;  // units of each rank: the slots of its part
    u64* theirs_ = nullptr;   // room for the next digest
    u64 several_ = 0;         // units of several holders
    u64 tiles_ = 0;
    u64 room_ = 0;           // for so many of them, and their masks
    u8* masks_ = nullptr;    // of these units: a bit a rank
    u64* counts_ = nullptr;  // [ranks, ranks]: units of the first that the second owns
};

extern "C" {

// Releases an agreement. No call that goes on from it may be under way.
ZENC_EXPORT void zenc_release_agreed(void* agreed) {
    delete static_cast<Agreed*>(agreed);
}
}

}  // namespace zenc
