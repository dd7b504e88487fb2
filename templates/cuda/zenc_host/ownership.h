// Ownership under `balanced by holders`, computed alike on all ranks from the index sets of all: cuts, that
// is which slots of which part some ranks hold. It takes one synchronisation with the host, and brings all
// counts of the call.
#pragma once

#include "zenc_host/jobs.h"
#include "zenc_host/launch/owned_rows.h"

namespace zenc {

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
        const u64* digest = exchange_digests(peers);
        for (u64& each : theirs) wanted.push_back({digest++, nullptr, &each});
        wanted.push_back({owners_.digest, nullptr, &mine});
        wanted.push_back({owners_.all_of_several(), nullptr, &several_});
        workshop_.cross(step, {}, {}, wanted);
        for (u64 i = 0; i < peers.size() && queue_.ok(); ++i)
            if (theirs[i] != mine)
                fail(queue_.call, DIFFERENT_CALLS, peers.first[i],
                     "it has chosen other owners for the units of this call");
    }

    // The digests of peers, on the device.
    const u64* exchange_digests(Numbers peers) {
        u64* const digests = queue_.allocate<u64>(peers.size());
        if (!queue_.ok()) return nullptr;
        Exchange messages(queue_, group_);
        u64* next = digests;
        for (const i64 peer : peers) {
            messages.send(peer, owners_.digest, DIGEST_BYTES);
            messages.receive(peer, next++, DIGEST_BYTES);
        }
        messages.run();
        return digests;
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
