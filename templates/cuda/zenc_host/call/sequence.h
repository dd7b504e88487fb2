// What generated call sequences are written in: the steps of one rank over numbered segments.
#pragma once

#include "zenc_host/call/end_report.h"
#include "zenc_host/nccl/payloads.h"

namespace zenc {

enum Kind : i64 { PUSH = 0, PULL = 1, ANNOUNCE = 2 };
enum class Announced { NO, YES };

constexpr i64 NOT_SENT = FORMAT_DENSE;  // values without an index
constexpr i64 FULL = 1 << 20;

// A segment of a sequence: what `ranks` ranks contributed of a part, the format in which it is sent first,
// and how many slots each unit may make it have, those that were filled up included. FULL: it has all slots.
struct Slot {
    i64 part;
    i64 asked;
    i64 ranks;
    i64 spread;
};

class Sequence {
public:
    Sequence(Call& call, Communicator& group, i64 parts, const Slot* segments, i64 n)
        : call_(call),
          group_(group),
          queue_(call, group.staging),
          capacity_(queue_),
          pack_(queue_, capacity_, parts),
          unit_bytes_(static_cast<u64>(row_bytes(call))),
          workshop_(queue_, group, capacity_, pack_, unit_bytes_),
          parts_(parts),
          held_(static_cast<u64>(n)) {
        for (i64 i = 0; i < n; ++i) {
            held(i)->at.part = static_cast<u64>(segments[i].part);
            held(i)->at.slots = static_cast<u64>(call.part_slots[segments[i].part]);
            held(i)->asked = segments[i].asked;
            if (capacity_.on() && segments[i].spread != FULL) make_room(*held(i), segments[i]);
        }
    }

    // Until this is called, what the steps use is counted, and nothing happens.
    void start() { counts_ = false; }

    // This rank's own gradient becomes segments 0 to parts - 1.
    void pack() {
        if (counts_) return;
        capacity_.begin();
        pack_.mark();
        for (i64 part = 0; part < parts_; ++part) {
            pack_.show(*held(part));
            workshop_.own(held(part));
        }
        if (const u64* const status = pack_.status(); status != nullptr && !capacity_.on())
            workshop_.watch({status, ~0ULL, BAD_UNIT, -1, -1});
    }

    // Opens a phase, in which messages are asked to be in `format`.
    void begin(Kind kind, i64 format) {
        if (counts_) return;
        take_time();
        kind_ = kind;
        format_ = format;
    }

    void send(i64 peer, Numbers segments, Announced announced = Announced::YES) {
        if (!use(segments, sent_)) return;
        sends_.push_back(parcel(peer, segments, announced));
    }

    void receive(i64 peer, Numbers segments, Announced announced = Announced::YES) {
        if (counts_) return;
        receives_.push_back(parcel(peer, segments, announced));
    }

    // Exchanges the messages of a step.
    void exchange(i64 step) {
        if (counts_) return;
        workshop_.mark(step);
        if (has_controls()) workshop_.cross(step, sends_, receives_);
        workshop_.make_values(step);
        release(queue_, spent_);
        PhaseCount& counted = call_.phases[kind_];
        Bodies(queue_, group_, format_, unit_bytes_).exchange(sends_, receives_, sent_, counted, workshop_);
        sends_.clear();
        receives_.clear();
        release_own();
    }

    void merge(i64 result, Numbers segments) {
        held(result)->is_sum = true;
        if (use(segments, spent_)) workshop_.merge(held(result), several(segments));
    }

    void fill(i64 result, i64 segment, i64 format) {
        if (use({segment}, spent_)) workshop_.fill(held(result), held(segment), format);
    }

    void sparsify(i64 result, i64 segment) {
        if (use({segment}, spent_)) workshop_.sparsify(held(result), held(segment));
    }

    // Makes the result of the complete segments of all parts, and waits for it. `own` are those that this
    // rank has contributed.
    void finish(Numbers own, Numbers complete) {
        if (counts_) {
            use(complete, spent_);
            if (capacity_.on()) use(own, spent_);  // whose counts are still on the device
            held(*complete.begin())->is_result = ends_in_place(*held(*complete.begin()));
            return;
        }
        workshop_.mark(END);
        workshop_.make_values(END);
        release(queue_, spent_);
        release_own();
        take_time();
        if (capacity_.on()) agree();
        if (queue_.ok()) expand(several(complete));
        if (capacity_.on())
            report(several(own), several(complete));
        else
            workshop_.cross(END, {}, {});
        if (!queue_.ok() || call_.report != nullptr) return;
        i64* count = call_.counts_in;
        for (const i64 segment : own) *count++ = static_cast<i64>(held(segment)->at.count);
        count = call_.counts_out;
        for (const i64 segment : complete) *count++ = static_cast<i64>(held(segment)->at.count);
    }

private:
    Held* held(i64 number) { return &held_[static_cast<u64>(number)]; }

    // Whether the steps are taken. What is used for the last time goes to `spent`, until that is done.
    bool use(Numbers segments, Several& spent) {
        for (const i64 segment : segments) zenc::use(*held(segment), counts_, spent);
        return !counts_;
    }

    // Whether the values of the one part that there is are the result as they are: units are slots then, and
    // how many there will be is known before there is memory for them.
    // Dense ones are made of sums that nobody else needs: see Values.
    bool ends_in_place(const Held& complete) const {
        const bool is_last = complete.is_sum && complete.uses == 1;
        return parts_ == 1 && !capacity_.on() && !has_mapping(queue_) &&
               (call_.dense_out == nullptr || is_last);
    }

    // Releases the ranks of all own segments, which are one piece, once no segment uses its own.
    void release_own() {
        bool used = !queue_.ok();
        for (i64 part = 0; part < parts_; ++part)
            used |= held(part)->uses != 0 && pack_.has_ranks_of(held(part)->at);
        if (!used) pack_.release_ranks();
    }

    Several several(Numbers numbers) {
        Several found;
        for (const i64 number : numbers) found.push_back(held(number));
        return found;
    }

    Parcel parcel(i64 peer, Numbers segments, Announced announced) {
        const bool exact = !capacity_.on();
        return {peer, several(segments), exact && announced == Announced::YES,
                exact && format_ != FORMAT_DENSE};
    }

    void make_room(Held& held, const Slot& slot) {
        held.roomy = true;
        know_count(held, capacity_.room(held.at.slots, slot.ranks, slot.spread));
    }

    // Whether the call has to be made again, on all ranks.
    void agree() {
        if (!queue_.ok()) return;
        capacity_.expect(workshop_.watched());
        capacity_.agree(group_);
    }

    // Brings to the host whether the call has to be made again, and all counts.
    void report(const Several& own, const Several& complete) {
        std::vector<Number> numbers = {{0, capacity_.raised()}};
        for (const Several* segments : {&own, &complete})
            for (const Held* each : *segments) numbers.push_back({each->at.count, each->at.actual});
        const u64* found = report_numbers(queue_, group_, numbers);
        if (!queue_.ok() || call_.report != nullptr) return;
        call_.made_again = static_cast<i64>(*found++);
        for (Held* each : own) each->at.count = *found++;
        call_.count_out = 0;
        for (Held* each : complete) {
            each->at.count = *found++;
            call_.count_out += static_cast<i64>(each->at.count);
        }
    }

    bool has_controls() const {
        for (const Parcels* parcels : {&sends_, &receives_})
            for (const Parcel& parcel : *parcels)
                if (parcel.announced) return true;
        return false;
    }

    void expand(const Several& complete) {
        if (call_.dense_out != nullptr) mark_encoded(queue_, complete);
        Segments segments;
        for (const Held* each : complete) {
            segments.push_back(each->at);
            call_.count_out += static_cast<i64>(each->at.count);
        }
        if (call_.dense_out != nullptr) {
            if (is_bare_result(*complete[0])) return;
            expand_dense(queue_, segments, capacity_.raised());
            return;
        }
        const u64 count = static_cast<u64>(call_.count_out);
        call_.ids_out = static_cast<i64*>(queue_.allocate_alone(8 * count));
        call_.values_out = is_bare_result(*complete[0]) ? complete[0]->at.values
                                                        : queue_.allocate_alone(count * unit_bytes_);
        if (queue_.ok()) expand_units(queue_, segments);
    }

    // What has passed belongs to the phase that was open.
    void take_time() {
        const i64 now = nanoseconds_now();
        if (format_ != NO_PHASE) call_.phases[kind_].nanoseconds += now - since_;
        since_ = now;
    }

    static constexpr i64 NO_PHASE = -1;

    Call& call_;
    Communicator& group_;
    Queue queue_;
    Capacity capacity_;
    Pack pack_;
    const u64 unit_bytes_;
    SegmentJobs workshop_;
    const i64 parts_;
    std::vector<Held> held_;
    Several sent_, spent_;  // for the last time: in messages, for other segments
    bool counts_ = true;
    Parcels sends_, receives_;
    Kind kind_ = PUSH;
    i64 format_ = NO_PHASE;
    i64 since_ = 0;
};

}  // namespace zenc
