// Calls that may have to be made again: capacity mode, where room is made before anything is counted, and
// units that were announced.
#pragma once

#include "zenc_host/messages.h"
#include "zenc_host/segment_kernels.h"

namespace zenc {

// Capacity mode in a call. Room is laid out before counts are known, so nothing waits for the device; if some
// rank has too little room, every rank finds out at the end of the call.
static const Kernel ADMIT("zenc_admit", Typed::NO, Ending::GATHER);

inline u64 residual_bytes(const Call& call) {
    return static_cast<u64>(call.units) * static_cast<u64>(call.width) * sizeof(float);
}

class Capacity {
public:
    explicit Capacity(Queue& queue) : queue_(queue) {}

    bool on() const { return queue_.call.own_share > 0; }

    // Whether the call may have to be made again, which is also so if ranks have announced their units.
    bool may_fail() const { return on() || queue_.call.agreed != nullptr; }

    // On the device: 0 unless the call has to be made again. Null for a call that is never made again.
    u64* raised() const { return agreed_; }

    // The slots that the contributions of `ranks` to a part may occupy; a unit takes up to `spread` of them.
    u64 room(u64 slots, i64 ranks, i64 spread) const {
        const Call& call = queue_.call;
        const u64 own = share_of(call.own_share, slots), sum = share_of(call.sum_share, slots);
        const u64 most = own < sum / static_cast<u64>(ranks) ? own * static_cast<u64>(ranks) : sum;
        return most < slots / static_cast<u64>(spread) ? most * static_cast<u64>(spread) : slots;
    }

    void begin() {
        if (may_fail()) agreed_ = queue_.allocate_cleared<u64>(AGREED);
    }

    // Raises unless segments, which are marked and ranked, have room, and words on the device have their
    // expected values. Then writes how many slots each segment has: none once it is raised.
    void admit(const Segments& segments, const std::vector<Expected>& words = {}) {
        const i64 m = number_of(words);
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

    // Raises unless the `own` units, which are marked and ranked, are the `announced` ones.
    void compare(const Segment& own, const Segment& announced) {
        Held both;
        both.at.slots = own.slots;
        make_marks(queue_, {&both});
        if (!queue_.ok()) return;
        sum(queue_, {{both.at}, {own, announced}, {{0, 2}}});
        u64* const counts = queue_.allocate<u64>(2);
        gather(queue_, {count_of(own, counts), count_of(both.at, counts + 1)});
        admit({}, {{counts, announced.count}, {counts + 1, announced.count}});
    }

    // Has all ranks agree: afterwards it is raised on all or on none. It is raised, too, if ranks are in
    // different calls: then the greatest signature, or the complement of the smallest, differs from each
    // rank's own.
    void agree(Communicator& group) {
        if (group.size == 1) return;
        const u64 signature = queue_.call.signature;
        gather(queue_, {literal(signature, agreed_ + 1), literal(~signature, agreed_ + 2)});
        all_reduce_max(queue_, group, agreed_, AGREED);
        admit({}, {{agreed_ + 1, signature}, {agreed_ + 2, ~signature}});
    }

    // Brings to the host whether the call has to be made again, and all counts; a captured call does so with
    // every replay.
    void report(Communicator& group, const Several& own, const Several& complete) {
        Call& call = queue_.call;
        u64 again = 0;
        Wanted wanted = {{raised(), nullptr, &again}}, told = wanted;
        for (const Several& segments : {own, complete})
            for (Held* each : segments) {
                told.push_back({each->at.actual, nullptr, &each->at.count});
                if (each->at.actual != nullptr) wanted.push_back(told.back());
            }
        if (call.report != nullptr) return report_with_replays(told);
        HostSync(queue_, group).run(END, {}, {}, wanted);
        call.made_again = static_cast<i64>(again);
        call.count_out = 0;
        for (const Held* each : complete) call.count_out += static_cast<i64>(each->at.count);
    }

    // Copies the residual before losses are added to it, if the call may have to be made again.
    void remember_residual() {
        const Call& call = queue_.call;
        if (!on() || call.own_share >= 1 || call.residual == nullptr || residual_before_ != nullptr) return;
        residual_before_ = static_cast<float*>(queue_.allocate(residual_bytes(call)));
        queue_.copy(residual_before_, call.residual, residual_bytes(call));
    }

    // The copy, or null.
    const float* residual_before() const { return residual_before_; }

private:
    static constexpr u64 AGREED = 3;  // raised, the signature, and its complement

    void report_with_replays(Wanted wanted) {
        auto* to = reinterpret_cast<u64*>(queue_.call.report);
        for (Gathered& each : wanted) {
            if (each.from == nullptr) each = literal(*each.to);
            each.to = to++;
        }
        gather(queue_, wanted);
        queue_.stream();
    }

    static u64 share_of(double share, u64 slots) {
        const double all = static_cast<double>(slots);
        const u64 found = static_cast<u64>(share * all) + 1;
        return found < slots ? found : slots;
    }

    Queue& queue_;
    u64* agreed_ = nullptr;
    float* residual_before_ = nullptr;
};

}  // namespace zenc
