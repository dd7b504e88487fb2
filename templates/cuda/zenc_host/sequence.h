// The statements of rank programs: what one rank does with numbered segments in a call.
#pragma once

#include "zenc_host/bodies.h"

namespace zenc {

// Plays statements. The last list of each, `spent`, names segments that no later one uses.
class Sequence {
public:
    Sequence(Call& call, Communicator& group, const Program& program)
        : call_(call),
          group_(group),
          program_(program),
          queue_(by_holders() ? call_of_one_part() : call, group, by_holders() ? 1 : program.of.parts),
          capacity_(queue_),
          pack_(queue_, capacity_),
          jobs_(queue_, group, capacity_, pack_),
          agreement_(queue_, group, jobs_, program.cuts, program.of.cuts, program.pieces),
          held_(static_cast<u64>(program.of.segments)) {
        for (i64 i = 0; i < program.of.segments; ++i) {
            prepare(*held(i), program.segments[i]);
            if (program.segments[i].in_result != NOT_IN_RESULT) complete_.push_back(held(i));
            held(i)->complete = program.segments[i].in_result != NOT_IN_RESULT;
        }
        if (call.finite != 0) queue_.greatest = queue_.allocate_cleared<u64>(1);
        if (call.residual_undefined == 0) return;
        queue_.undefined.assign(static_cast<u64>(program.of.parts), units_ascend(call) && !by_holders());
        if (!queue_.undefined[0]) queue_.clear(call.residual, static_cast<u64>(4 * call.units * call.width));
    }

    // Packs this rank's gradient into `results`: one segment a part, or one of all units. The counts of `own`
    // are asked for, and `unused` are results that nothing uses, and that must be empty.
    void pack(Numbers results, Numbers own, Numbers unused) {
        own_ = several(own);
        const Several packed = several(results);
        unused_ = several(unused);
        for (Held* each : own_) each->kept = capacity_.on();  // whose counts are on the device to the end
        for (Held* each : unused_) {
            each->spent = !each->kept;
            if (each->roomy) know_count(*each, 0);  // what is there has the call made again, exactly
        }
        capacity_.begin();
        if (unused_.empty() && pack_.has_ranges(own_)) return pack_.take_ranges(own_);
        pack_.mark();
        if (by_holders()) queue_.keep_for_bitmaps({});  // no other bitmap will be so large
        const auto* const agreed = static_cast<const Agreed*>(call_.agreed);
        const Segment* announced = nullptr;
        for (Held* each : packed) {
            pack_.show(*each);
            if (agreed != nullptr) announced = &go_on_from(*agreed, *each);
            jobs_.own(each);
        }
        pack_.pack_values(packed);
        if (announced != nullptr) capacity_.compare(packed[0]->at, *announced);
        if (const u64* const status = pack_.status(); status != nullptr && !capacity_.on())
            jobs_.watch({status, 0, BAD_UNIT, -1, -1});
    }

    // Opens a phase, whose messages are asked to be in `format`.
    void begin(Kind kind, Carries carries, i64 format) {
        take_time();
        kind_ = kind;
        carries_ = carries;
        format_ = format;
        code_ = {};
        ++phase_;
    }

    // Sets the code in which the values of the open phase travel, and the seed of its draws.
    void code(i64 number, i64 levels, i64 bits, i64 block, i64 seed) {
        queue_.overwrites = true;
        code_ = {number, levels, bits, block};
        seed_ = static_cast<u64>(seed);
    }

    void send(i64 peer, Numbers segments, Announced announced) {
        sends_.push_back(message(peer, segments, announced));
    }

    void receive(i64 peer, Numbers segments, Announced announced) {
        for (const i64 segment : segments) give_code(segment);
        receives_.push_back(message(peer, segments, announced));
    }

    // Exchanges the messages of a step.
    void exchange(i64 step, Numbers spent) {
        step_ = step;
        spend(spent, sent_);
        jobs_.mark(step);
        if (has_controls()) jobs_.cross(step, sends_, receives_);
        if (carries_ == SEGMENTS && all_counted(complete_)) make_result();
        jobs_.make_values(step);
        jobs_.demand_nothing_of(unused_);
        release(queue_, spent_);
        PhaseCount& counted = call_.phases[kind_];
        if (code_.number == ASC_CODE) exchange_sizes(queue_, group_, sends_, receives_, step, counted);
        Bodies(queue_, group_, carries_, format_)
            .exchange(sends_, receives_, sent_, counted, jobs_, agreement_);
        sends_.clear();
        receives_.clear();
    }

    // Sums segments of one part, in this order.
    void merge(i64 result, Numbers segments, Numbers spent) {
        if (carries_ == ROWS)
            jobs_.sum(held(result), several(segments));
        else
            jobs_.ask(Work::MERGE, held(result), several(segments));
        spend(spent, spent_);
    }

    // Fills a segment up. One that was taken as a range of the tensor has all slots already; it is taken anew
    // if absent units are to be -0.
    void fill(i64 result, i64 segment, i64 format, bool marks, Numbers spent) {
        if (!held(result)->valued) {
            held(result)->at.format = format;
            jobs_.ask(Work::FILL, held(result), {held(segment)}, marks);
        } else if (marks) {
            pack_.copy_ranges({held(result)}, marks);
        }
        spend(spent, spent_);
    }

    void sparsify(i64 result, i64 segment, bool marked, Numbers spent) {
        leaves_out_ = true;
        jobs_.ask(Work::SPARSIFY, held(result), {held(segment)}, marked);
        spend(spent, spent_);
    }

    // Encodes contributions of `ranks` in the phase's code; this rank may `keep` what is lost.
    void encode(i64 result, i64 segment, Numbers ranks, bool keeps, Numbers spent) {
        give_code(result);
        if (keeps) capacity_.remember_residual();
        held(result)->by = {key_of(call_.salt, seed_, phase_, held(result)->at.part, ranks), keeps};
        jobs_.ask(Work::ENCODE, held(result), {held(segment)});
        spend(spent, spent_);
    }

    // Keeps what the selection at `place` takes of the sum of contributions of `ranks`. On the way, `full`
    // and `chosen` have all slots, unless the selection takes the greatest, for which zeros are not needed.
    void select(i64 result, i64 segment, i64 full, i64 chosen, i64 place, Numbers ranks, bool keeps,
                Numbers spent) {
        if (call_.choose == nullptr) return decode(result, segment, spent);
        const u64 key = key_of(call_.salt, 0, phase_, held(result)->at.part, ranks);
        held(chosen)->by = {key, keeps, place};
        i64 from = segment;
        if (call_.chooses_rows == 0 || !has(spent, segment) || held(segment)->full) {
            from = full;
            fill(full, segment, FORMAT_DENSE, false, list());
        } else {
            held(chosen)->full = held(chosen)->counted = false;
        }
        jobs_.ask(Work::CHOOSE, held(chosen), {held(from)});
        jobs_.ask(Work::SPARSIFY, held(result), {held(chosen)});
        spend(spent, spent_);
        spend(list(full, chosen), spent_);
    }

    // Decodes values, and drops the bytes that they came as.
    void decode(i64 result, i64 segment, Numbers spent) {
        jobs_.ask(Work::DECODE, held(result), {held(segment)});
        spend(spent, spent_);
    }

    // Agrees on owners: all index sets are here, and all counts follow from them. Digests go to `peers` with
    // the first message to each.
    void agree(Numbers sets, Numbers peers) {
        jobs_.make_values(step_);
        if (queue_.ok()) agreement_.reach(step_, segments_of(several(sets)), peers);
        if (!queue_.ok()) return;
        take_cuts();
        PhaseCount& counted = call_.phases[ANNOUNCE];
        counted.bytes_sent += static_cast<i64>(peers.size() * Agreement::DIGEST_BYTES);
        counted.bytes_received += static_cast<i64>(peers.size() * Agreement::DIGEST_BYTES);
    }

    // Splits this rank's gradient into the rows of all parts; its index stays.
    void split(Numbers results, i64 segment) {
        const Several parts = several(results);
        jobs_.make_values(step_);
        if (!queue_.ok()) return;
        make_bodies(queue_, parts, queue_.row_bytes);
        for (Held* each : parts) each->valued = true;
        if (!queue_.ok()) return;
        agreement_.split(held(segment)->at, segments_of(parts));
        release_values(queue_, *held(segment));
        pack_.release_ranks();
    }

    // Makes the result from the complete segments of all parts, and waits for it.
    void finish(Numbers complete) {
        const Several parts = several(complete);
        jobs_.mark(END);
        jobs_.make_values(END);
        read(parts);
        release(queue_, spent_);
        take_time();
        if (capacity_.may_fail() && queue_.ok()) {
            capacity_.admit({}, jobs_.watched());
            capacity_.agree(group_);
        }
        const bool before = call_.agreed != nullptr && call_.dense_out != nullptr;
        if (before) learn_whether_again();
        if (queue_.ok() && !(before && call_.made_again != 0)) expand(parts);
        if (capacity_.on())
            capacity_.report(group_, own_, parts);
        else
            learn_whether_again();
        if (!queue_.ok() || call_.report != nullptr) return;
        if (by_holders() && parts.empty()) call_.announced = new Agreed(agreement_.agreed());
        i64* count = call_.counts_in;
        for (const Held* each : own_) *count++ = static_cast<i64>(each->at.count);
        count = call_.counts_out;
        for (const Held* each : parts) *count++ = static_cast<i64>(each->at.count);
        if (!is_ranged(call_)) return;
        count = call_.part_bytes;
        for (const Held* each : parts)
            *count++ = is_coded(*each) ? static_cast<i64>(body_bytes(*each, format_, queue_.row_bytes)) : 0;
    }

    const float* residual_before() const { return capacity_.residual_before(); }

private:
    bool by_holders() const { return program_.of.cuts != 0; }

    // Makes all units one part, until the ranks have agreed.
    Call& call_of_one_part() {
        call_.part_slots = &call_.units;
        return call_;
    }

    void prepare(Held& made, const SegmentSpec& spec) {
        made.asked = spec.cut == NO_CUT ? spec.asked : NOT_SENT;
        const u64* const c = call_.costs;
        made.costs = {c[0], c[1], c[2], c[3], c[4]};
        made.is_result = spec.in_result != NOT_IN_RESULT && ends_in_place(spec);
        if (spec.cut != NO_CUT) return;
        made.at.part = spec.part == WHOLE ? 0 : static_cast<u64>(spec.part);
        made.at.slots = static_cast<u64>(call_.part_slots[made.at.part]);
        made.full = spec.spread == FULL;
        if (made.full) know_count(made, made.at.slots);
        made.lands = made.full && spec.in_result != NOT_IN_RESULT && call_.dense_out != nullptr &&
                     units_ascend(call_) && !capacity_.on() && !by_holders();
        if (!capacity_.on() || made.full) return;
        made.roomy = true;
        know_count(made, capacity_.room(made.at.slots, spec.ranks, spec.spread));
    }

    // Whether the values of the only part are the result as they are: then slots are units, and their number
    // is known before there is memory for them. A dense result must be a sum that nobody else needs: see
    // Values. Single values are summed faster elsewhere.
    bool ends_in_place(const SegmentSpec& complete) const {
        if (program_.of.parts != 1 || by_holders() || capacity_.on() || !units_ascend(call_) ||
            is_ranged(call_))
            return false;
        return call_.dense_out == nullptr || (complete.in_result == SUM_FOR_RESULT && !has_lane_sums(call_));
    }

    Held* held(i64 number) { return &held_[static_cast<u64>(number)]; }

    Several several(Numbers numbers) {
        Several found;
        for (const i64 number : numbers) found.push_back(held(number));
        return found;
    }

    // Gives a segment the code of its phase: sums of integers have more bits, and sums of votes more levels.
    void give_code(i64 number) {
        Held& to = *held(number);
        to.code = code_;
        if (!is_coded(to)) return;
        if (has_one_step(code_))
            to.code.bits += static_cast<i64>(bits_below(static_cast<u64>(program_.segments[number].ranks)));
        if (code_.number == VOTE_CODE) to.code.levels = static_cast<i64>(program_.segments[number].ranks);
        to.width = static_cast<u64>(call_.width);
        to.is_result = false;  // bytes come before values
    }

    static bool has(Numbers numbers, i64 number) {
        return std::find(numbers.begin(), numbers.end(), number) != numbers.end();
    }

    // Marks segments as used for the last time, and adds them to `to` until that is done.
    void spend(Numbers segments, Several& to) {
        for (const i64 segment : segments) {
            Held* const each = held(segment);
            if (each->kept) continue;
            each->spent = true;
            to.push_back(each);
        }
    }

    Message message(i64 peer, Numbers segments, Announced announced) {
        const bool exact = !capacity_.on();
        const bool counted = carries_ != ROWS && format_ != FORMAT_DENSE;
        return {peer, several(segments), exact && announced == ANNOUNCED, exact && counted};
    }

    bool has_controls() const {
        for (const Messages* messages : {&sends_, &receives_})
            for (const Message& message : *messages)
                if (message.announced) return true;
        return false;
    }

    // Goes on from an announce: all ranks have announced their units, and `own` is to have room for this
    // rank's, whose segment is returned.
    const Segment& go_on_from(const Agreed& agreed, Held& own) {
        agreement_.go_on_from(agreed);
        take_cuts();
        const Segment& announced = agreed.sets[static_cast<u64>(group_.rank)];
        know_count(own, pack_.expect(announced.count));
        return announced;
    }

    // Takes the cuts over into segments: all counts are known.
    void take_cuts() {
        for (i64 i = 0; i < program_.of.segments; ++i)
            if (const i64 cut = program_.segments[i].cut; cut != NO_CUT) held(i)->at = agreement_.cut(cut);
        make_result();
    }

    // Reads the values of complete parts, and completes the residual.
    void read(const Several& parts) {
        if (!queue_.ok()) return;
        decode_now(queue_, parts);
        for (const Held* each : parts)
            if (each->lent) pack_.clear_signs();
        if (!all_ranges(parts) && !leaves_out_) pack_.clear_signs();
        raise_greatest(queue_, parts);
        define_residuals(queue_);
    }

    // Learns whether the call has to be made again: the last wait of a call, or the last but one for
    // announced units that are summed into the tensor that they are read from.
    void learn_whether_again() {
        u64 found = 0;
        const u64* const word = call_.agreed != nullptr ? capacity_.raised() : queue_.greatest;
        if (word == nullptr) return jobs_.cross(END, {}, {});
        jobs_.cross(END, {}, {}, {{word, nullptr, &found}});
        if (call_.agreed != nullptr)
            call_.made_again = static_cast<i64>(found);
        else
            call_.finite = found < INFINITE;
    }

    static bool all_counted(const Several& which) {
        return std::all_of(which.begin(), which.end(), [](const Held* each) { return each->counted; });
    }

    // Makes memory for a sparse result, once its parts are counted: before the last messages are under way,
    // if possible.
    void make_result() {
        if (has_result_ || !queue_.ok()) return;
        has_result_ = true;
        for (const Held* each : complete_) call_.count_out += static_cast<i64>(each->at.count);
        if (call_.dense_out != nullptr) return;
        call_.ids_out = static_cast<i64*>(queue_.allocate_alone(8 * static_cast<u64>(call_.count_out)));
        if (complete_.empty() || !complete_[0]->is_result) make_result_values();
    }

    void make_result_values() {
        call_.values_out = queue_.allocate_alone(static_cast<u64>(call_.count_out) * queue_.row_bytes);
    }

    void expand(const Several& complete) {
        make_result();
        if (complete.empty()) return;
        const bool dense = call_.dense_out != nullptr, bare = is_bare_result(*complete[0]);
        if (!dense && bare)
            call_.values_out = complete[0]->at.values;
        else if (!dense && complete[0]->is_result)
            make_result_values();
        if (!queue_.ok() || (dense && bare)) return;
        const bool in_ranges = dense && units_ascend(call_) && capacity_.raised() == nullptr;
        if (in_ranges && all_ranges(complete)) return expand_ranges(queue_, segments_of(complete));
        mark_ranges(queue_, complete);
        if (by_holders())
            agreement_.join(segments_of(complete));
        else if (dense)
            expand_dense(queue_, segments_of(complete), capacity_.raised(),
                         keeps_absent(call_) != 0 && !leaves_out_);
        else
            expand_units(queue_, segments_of(complete));
    }

    // Adds the time that has passed to the open phase.
    void take_time() {
        const i64 now = nanoseconds_now();
        if (since_ != 0) call_.phases[kind_].nanoseconds += now - since_;
        since_ = now;
    }

    Call& call_;
    Communicator& group_;
    const Program& program_;
    Queue queue_;
    Capacity capacity_;
    Pack pack_;
    SegmentJobs jobs_;
    Agreement agreement_;
    std::vector<Held> held_;
    Several own_, unused_;
    Several complete_;  // all parts of the result
    bool has_result_ = false;
    bool leaves_out_ = call_.choose != nullptr;  // contributed units, here or on another rank
    Several sent_, spent_;                       // for the last time: in messages, for other segments
    Messages sends_, receives_;
    Kind kind_ = PUSH;
    Carries carries_ = SEGMENTS;
    i64 format_ = FORMAT_AUTO;
    Coding code_;
    u64 seed_ = 0, phase_ = 0;
    i64 step_ = END;
    i64 since_ = 0;
};

}  // namespace zenc
