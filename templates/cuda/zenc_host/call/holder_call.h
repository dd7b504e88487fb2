// What generated call sequences under `balanced by holders` are written in: first index sets, numbered by the
// ranks that they are of; then, once the ranks have agreed, numbered rows, whose lengths all ranks know.
#pragma once

#include "zenc_host/call/entry.h"
#include "zenc_host/call/ownership.h"
#include "zenc_host/nccl/row_payloads.h"

namespace zenc {

// The tables of a sequence: rows[i] is the cut whose slots rows number i have. The first are this rank's own
// of all parts.
struct HolderTables {
    const Cut* cuts;
    i64 number_of_cuts;
    const i64* pieces;
    const i64* rows;
    i64 number_of_rows;
};

class HolderCall {
public:
    HolderCall(Call& call, Communicator& group, const HolderTables& tables)
        : call_(call),
          group_(group),
          queue_(call, group.staging),
          capacity_(queue_),
          pack_(queue_of_one_part(), capacity_, 1),
          unit_bytes_(static_cast<u64>(row_bytes(call))),
          workshop_(queue_, group, capacity_, pack_, unit_bytes_),
          agreement_(queue_, group, workshop_, tables.cuts, tables.number_of_cuts, tables.pieces),
          cuts_of_(tables.rows, tables.rows + tables.number_of_rows),
          sets_(static_cast<u64>(group.size)),
          rows_(cuts_of_.size()) {
        for (Held& set : sets_) {
            set.at.slots = static_cast<u64>(call.units);
            set.asked = FORMAT_AUTO;
            set.uses = 1;  // to the end
        }
    }

    // Until this is called, what the steps use is counted, and nothing happens.
    void start() { counts_ = false; }

    // This rank's own gradient, as one part: its index set is the beginning of its body.
    void pack() {
        if (counts_) return;
        pack_.mark();
        queue_.keep_for_bitmaps({});  // no other bitmap will be so large
        pack_.show(own());
        workshop_.own(&own());
        if (const u64* const status = pack_.status()) workshop_.watch({status, ~0ULL, BAD_UNIT, -1, -1});
    }

    // Opens a phase.
    void begin(Kind kind) {
        if (!counts_) take_time();
        kind_ = kind;
    }

    void send(i64 peer, Numbers numbers) {
        if (kind_ != ANNOUNCE) use(numbers, sent_);
        if (!counts_) sends_.push_back(parcel(peer, numbers));
    }

    void receive(i64 peer, Numbers numbers) {
        if (!counts_) receives_.push_back(parcel(peer, numbers));
    }

    // Exchanges the messages of a step.
    void exchange(i64 step) {
        if (counts_) return;
        step_ = step;
        if (kind_ == ANNOUNCE)
            exchange_sets();
        else
            exchange_rows();
        sends_.clear();
        receives_.clear();
    }

    // All index sets are here. Compares with `peers` what follows from them, and cuts the own gradient.
    void agree(Numbers peers) {
        if (counts_) return;
        workshop_.make_values(step_);
        if (queue_.ok()) agreement_.reach(step_, segments(sets_), peers);
        if (!queue_.ok()) return;
        for (u64 i = 0; i < rows_.size(); ++i) {
            rows_[i].at = agreement_.cut(cuts_of_[i]);
            rows_[i].asked = FORMAT_DENSE;
        }
        split();
        PhaseCount& counted = call_.phases[ANNOUNCE];
        counted.bytes_sent += static_cast<i64>(peers.size() * Agreement::DIGEST_BYTES);
        counted.bytes_received += static_cast<i64>(peers.size() * Agreement::DIGEST_BYTES);
    }

    // The sum of rows of one part, added in this order.
    void merge(i64 result, Numbers numbers) {
        use(numbers, spent_);
        if (!counts_) workshop_.sum(row(result), several(numbers));
    }

    // Makes the result of the complete rows of all parts, and waits for it.
    void finish(Numbers complete) {
        use(complete, spent_);
        if (counts_) return;
        workshop_.make_values(END);
        take_time();
        if (queue_.ok()) join(segments(several(complete)));
        workshop_.cross(END, {}, {});
        if (!queue_.ok()) return;
        for (i64 part = 0; part < group_.size; ++part) {
            call_.counts_in[part] = static_cast<i64>(row(part)->at.count);
            call_.counts_out[part] = static_cast<i64>(agreement_.slots(part));
        }
    }

private:
    // Until the ranks have agreed, all units are one part.
    Queue& queue_of_one_part() {
        call_.part_slots = &call_.units;
        return queue_;
    }

    Held& own() { return sets_[static_cast<u64>(group_.rank)]; }
    Held* row(i64 number) { return &rows_[static_cast<u64>(number)]; }
    Held* set(i64 number) { return &sets_[static_cast<u64>(number)]; }

    void use(Numbers numbers, Several& spent) {
        for (const i64 number : numbers) zenc::use(*row(number), counts_, spent);
    }

    Several several(Numbers numbers) {
        Several found;
        for (const i64 number : numbers) found.push_back(kind_ == ANNOUNCE ? set(number) : row(number));
        return found;
    }

    static Segments segments(const Several& which) {
        Segments found;
        for (const Held* held : which) found.push_back(held->at);
        return found;
    }

    static Segments segments(const std::vector<Held>& which) {
        Segments found;
        for (const Held& held : which) found.push_back(held.at);
        return found;
    }

    Parcel parcel(i64 peer, Numbers numbers) {
        return {peer, several(numbers), kind_ == ANNOUNCE, kind_ == ANNOUNCE};
    }

    // Segments without values.
    void exchange_sets() {
        workshop_.cross(step_, sends_, receives_);
        workshop_.make_values(step_);
        if (!queue_.ok()) return;
        PhaseCount& counted = call_.phases[ANNOUNCE];
        Several spent;
        Bodies(queue_, group_, FORMAT_AUTO, 0).exchange(sends_, receives_, spent, counted, workshop_);
        if (!pack_.has_ranks_of(own().at)) pack_.release_ranks();
    }

    // The own gradient becomes the rows of all parts; its index stays.
    void split() {
        Several parts;
        for (i64 part = 0; part < group_.size; ++part) parts.push_back(row(part));
        make_bodies(queue_, parts, unit_bytes_);
        for (Held* held : parts) held->valued = true;
        if (!queue_.ok()) return;
        agreement_.split(segments(parts));
        release_values(queue_, own());
        pack_.release_ranks();
    }

    // Values without an index, of lengths that both ranks know.
    void exchange_rows() {
        workshop_.make_values(step_);
        release(queue_, spent_);
        RowBodies(queue_, group_, unit_bytes_).exchange(sends_, receives_, sent_, call_.phases[kind_]);
    }

    void join(const Segments& parts) {
        call_.count_out = static_cast<i64>(agreement_.present());
        const u64 count = agreement_.present();
        if (call_.dense_out == nullptr) {
            call_.ids_out = static_cast<i64*>(queue_.allocate_alone(8 * count));
            call_.values_out = queue_.allocate_alone(count * unit_bytes_);
        }
        if (queue_.ok()) agreement_.join(parts);
    }

    // What has passed belongs to the phase that was open.
    void take_time() {
        const i64 now = nanoseconds_now();
        if (since_ != 0) call_.phases[kind_].nanoseconds += now - since_;
        since_ = now;
    }

    Call& call_;
    Communicator& group_;
    Queue queue_;
    Capacity capacity_;  // off
    Pack pack_;
    const u64 unit_bytes_;
    SegmentJobs workshop_;
    Agreement agreement_;
    const std::vector<i64> cuts_of_;  // of all rows
    std::vector<Held> sets_;          // of all ranks
    std::vector<Held> rows_;
    Several sent_, spent_;  // for the last time: in messages, for sums
    bool counts_ = true;
    Parcels sends_, receives_;
    Kind kind_ = ANNOUNCE;
    i64 step_ = END;
    i64 since_ = 0;
};

// What one rank does in every call.
struct HolderProgram {
    i64 rank;
    HolderTables tables;
    void (*steps)(HolderCall& rank);

    void play(Call& call, Communicator& group) const {
        HolderCall holders(call, group, tables);
        steps(holders);  // counts the uses of rows, and nothing else
        holders.start();
        steps(holders);
    }
};

}  // namespace zenc
