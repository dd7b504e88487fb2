// Launchers: what capacity mode adds to a call. Room is laid out before counts are known, so nothing waits
// for the device; where there was not room for all, every rank finds out at the end of the call.
#pragma once

#include "zenc_host/messages.h"
#include "zenc_host/queue.h"

namespace zenc {

static const Kernel ADMIT("zenc_admit", Typed::NO, Ending::GATHER);

class Capacity {
public:
    explicit Capacity(Queue& queue) : queue_(queue) {}

    bool on() const { return queue_.call.own_share > 0; }

    // On the device: 0, unless the call has to be made again. Null in exact mode.
    u64* raised() const { return agreed_; }

    // The slots that what `ranks` contributed to a part may occupy, each unit up to `spread` of them.
    u64 room(u64 slots, i64 ranks, i64 spread) const {
        const Call& call = queue_.call;
        const u64 own = share_of(call.own_share, slots), sum = share_of(call.sum_share, slots);
        const u64 most = own < sum / static_cast<u64>(ranks) ? own * static_cast<u64>(ranks) : sum;
        return most < slots / static_cast<u64>(spread) ? most * static_cast<u64>(spread) : slots;
    }

    void begin() {
        if (!on()) return;
        agreed_ = queue_.allocate_cleared<u64>(AGREED);
    }

    // Raises unless segments, which are marked and ranked, have room, and words on the device are what they
    // should be. Then writes how many slots segments have: none once it is raised.
    void admit(const Segments& segments, const std::vector<Expected>& words = {}) {
        const i64 m = static_cast<i64>(words.size());
        if (segments.empty() && words.empty()) return;
        Epilogue* const end = queue_.epilogue(Ending::ADMIT, segments, words);
        if (end == nullptr)
            return queue_.launch(ADMIT, 1, 1, segments, number_of(segments), words, m, raised());
        end->admitted = queue_.at_end(segments);
        end->number_admitted = number_of(segments);
        end->words = queue_.at_end(words);
        end->number_of_words = m;
        end->raised = raised();
    }

    // From here on it is raised on all ranks or on none; also if they are in different calls: then the
    // greatest signature, and the complement of the smallest, are not this rank's on any of them.
    void agree(Communicator& group) {
        if (group.size == 1) return;
        const u64 signature = queue_.call.signature;
        gather(queue_, {literal(signature, agreed_ + 1), literal(~signature, agreed_ + 2)});
        all_reduce_max(queue_, group, agreed_, AGREED);
        admit({}, {{agreed_ + 1, signature}, {agreed_ + 2, ~signature}});
    }

private:
    static constexpr u64 AGREED = 3;  // raised, the signature, and its complement

    static u64 share_of(double share, u64 slots) {
        const double all = static_cast<double>(slots);
        const u64 found = static_cast<u64>(share * all) + 1;
        return found < slots ? found : slots;
    }

    Queue& queue_;
    u64* agreed_ = nullptr;
};

}  // namespace zenc
