// Segments made from others: bitmaps and ranks when a step needs them, values as soon as counts are known.
// What is asked for in a row is done in one launch where it can be.
#pragma once

#include "zenc_host/coded_segments.h"
#include "zenc_host/pack.h"

namespace zenc {

// The kind of work that makes `result` from others: bitmap and ranks by MERGE, FILL or SPARSIFY; then the
// values, by MERGE or SPREAD. PLACE makes the values of all own segments, and LAY_OUT finds them made. Kinds
// from ENCODE on take over everything from one segment, which nothing else uses.
enum class Work {
    PLACE,
    MERGE,     // the sum of segments of one part, added in this order
    FILL,      // the same segment with the slots that the result's format fills up
    SPARSIFY,  // without the units that are all zero, or of a `marked` one all -0
    SPREAD,
    LAY_OUT,
    ENCODE,  // as the bytes of the result's code, with what they mean for values
    DECODE,  // without its bytes
    CHOOSE,  // the same full segment with +0 for all but what a selection takes
};

// A job. `marked`: units that nobody has are -0, and zeros that somebody has are +0.
struct Job {
    Work work;
    Held* result;
    Several from;
    bool marked = false;

    bool takes_over() const { return work >= Work::ENCODE; }
};

using Jobs = std::vector<Job>;

// The segments of jobs, as launchers take them.
inline Made made_by(const Jobs& jobs) {
    Made of;
    for (const Job& job : jobs) {
        of.add(job.result->at, job.from.size());
        for (const Held* held : job.from) of.from.push_back(held->at);
    }
    return of;
}

inline Several results_of(const Jobs& jobs) {
    Several found;
    for (const Job& job : jobs) found.push_back(job.result);
    return found;
}

inline Several pieces_of(const Jobs& jobs) {
    Several found;
    for (const Job& job : jobs) found.insert(found.end(), job.from.begin(), job.from.end());
    return found;
}

class SegmentJobs {
public:
    SegmentJobs(Queue& queue, Communicator& group, Capacity& capacity, Pack& pack)
        : queue_(queue), group_(group), capacity_(capacity), pack_(pack) {}

    // Asks for the values of a segment of this rank's own gradient, which is marked already.
    void own(Held* held) {
        if (!held->counted) uncounted_.push_back(held);
        marked_.push_back({Work::PLACE, held, {}});
    }

    // Asks for any work but PLACE.
    void ask(Work work, Held* result, Several from, bool marked = false) {
        for (Held* held : from) held->read = true;
        asked_.push_back({work, result, std::move(from), marked});
    }

    // Asks for the sum of segments, for a result that is marked and whose count is known.
    void sum(Held* result, Several from) {
        for (Held* held : from) held->read = true;
        marked_.push_back({Work::MERGE, result, std::move(from)});
    }

    // Clears signs of zeros in the tensor, whose values are read as they are from here on.
    void clear_signs() { pack_.clear_signs(); }

    // Has the next crossing look at a word.
    void watch(const Watched& word) { watched_.push_back(word); }

    // The words that the next crossing would look at, if there were one.
    std::vector<Expected> watched() const {
        std::vector<Expected> found;
        for (const Watched& each : watched_) found.push_back({each.word, each.right});
        return found;
    }

    // Makes bitmaps and ranks of all that was asked for.
    void mark(i64 step) {
        in_batches(asked_, needs_no_other, [&](Jobs& batch) {
            if (needs_values(batch)) make_values(step);
            mark(batch);
        });
    }

    // Makes the values of all that is marked. The device is asked for counts that the host does not know yet.
    void make_values(i64 step) {
        if (!uncounted_.empty()) cross(step, {}, {});
        const auto ready = [](const Jobs&, const Job& job) { return has_values(job); };
        in_batches(marked_, ready, [&](Jobs& batch) { follow(batch, step); });
    }

    // Refuses units in packed segments whose parts other ranks own.
    void demand_nothing_of(const Several& which) {
        for (const Held* held : which)
            if (held->counted && held->at.count != 0 && queue_.ok())
                fail(queue_.call, NOT_OWNED, -1,
                     "rank %lld gathers %llu units of part %llu, which it does not own", group_.rank,
                     held->at.count, held->at.part);
    }

    // Exchanges controls, and learns all counts, and whatever else is wanted.
    void cross(i64 step, const Messages& sends, const Messages& receives, const Wanted& wanted = {}) {
        HostSync(queue_, group_, sends, receives).run(step, uncounted_, watched_, wanted);
        uncounted_.clear();
        watched_.clear();
    }

private:
    // Calls work(batch) for jobs of one kind that one launch can do, in their order: `goes_with` says whether
    // a job fits with those before it.
    template <class GoesWith, class DoWork>
    void in_batches(Jobs& jobs, GoesWith goes_with, DoWork work) {
        Jobs left;
        left.swap(jobs);
        for (u64 first = 0, end; first < left.size() && queue_.ok(); first = end) {
            Jobs batch = {left[first]};
            for (end = first + 1; end < left.size(); ++end) {
                if (!is_like(left[end], batch[0]) || !goes_with(batch, left[end])) break;
                batch.push_back(left[end]);
            }
            work(batch);
        }
    }

    // Whether a job's result has all slots, and is made without marks: a segment filled up, a sum of ranges,
    // or single values in the slots of a range.
    bool makes_range(const Job& job) const {
        if (!job.result->full) return false;
        if (job.work == Work::MERGE) return all_ranges(job.from);
        return job.work == Work::FILL || (job.work == Work::SPREAD && queue_.call.width == 1 && !job.marked);
    }

    bool is_like(const Job& job, const Job& other) const {
        return job.work == other.work && job.marked == other.marked && makes_range(job) == makes_range(other);
    }

    static bool needs_no_other(const Jobs& batch, const Job& job) {
        for (const Job& other : batch)
            for (const Held* held : job.from)
                if (held == other.result) return false;
        return true;
    }

    static bool has_values(const Job& job) {
        return std::all_of(job.from.begin(), job.from.end(), [](const Held* held) { return held->valued; });
    }

    // Whether the values of a sum are made together with its bitmap: those of narrow rows are, unless they
    // lie in a result, which is made once it is counted.
    bool is_summed_at_once(const Job& job) const {
        return job.work == Work::MERGE && queue_.row_bytes < WIDE_ROW && !job.result->is_result &&
               !makes_range(job);
    }

    bool needs_values(const Jobs& batch) const {
        for (const Job& job : batch)
            if ((job.work == Work::SPARSIFY || is_summed_at_once(job)) && !has_values(job)) return true;
        return false;
    }

    // Makes room for sums, and returns the results that are summed at once.
    Several make_room_for_sums(const Jobs& batch) {
        Several summed;
        for (const Job& job : batch) {
            if (!is_summed_at_once(job)) continue;
            Segment& at = job.result->at;
            summed.push_back(job.result);
            job.result->valued = true;
            if (job.result->roomy) continue;
            at.count = 0;
            for (const Held* held : job.from) at.count += held->at.count;
            if (at.count > at.slots) at.count = at.slots;
        }
        make_bodies_ahead(queue_, summed);
        return summed;
    }

    void mark(Jobs& batch) {
        if (batch[0].takes_over()) return take_marks(batch);
        if (makes_range(batch[0])) return settle(batch);
        read_values(pieces_of(batch));
        mark_ranges(queue_, pieces_of(batch));
        make_marks(queue_, results_of(batch));
        const Several summed = make_room_for_sums(batch);
        if (!queue_.ok()) return;
        const Made of = made_by(batch);
        if (batch[0].work == Work::MERGE)
            zenc::sum(queue_, of);
        else if (batch[0].work == Work::FILL)
            zenc::fill(queue_, of.from, of.to);
        else
            mark_nonzero(queue_, of.from, of.to, batch[0].marked);
        if (batch[0].work != Work::MERGE) rank(queue_, of.to);
        admit(Work::MERGE, summed);
        settle(batch);
    }

    void settle(const Jobs& batch) {
        for (const Job& job : batch) settle(job);
    }

    // Settles how the count of a result becomes known: it is known if the result has all slots, or if room
    // was made for it; else it crosses.
    void settle(const Job& job) {
        Held* const result = job.result;
        bool full = job.work == Work::FILL && result->at.format == FORMAT_DENSE;
        for (const Held* held : job.from)
            full |= job.work != Work::SPARSIFY && held->counted && !held->roomy &&
                    held->at.count == held->at.slots;
        if (full && !result->roomy)
            know_count(*result, result->at.slots);
        else if (!result->counted)
            uncounted_.push_back(result);
        if (!is_summed_at_once(job))
            marked_.push_back({job.work == Work::MERGE ? Work::MERGE : Work::SPREAD, result, job.from,
                               job.marked && job.work == Work::FILL});
        else if (!result->roomy)
            marked_.push_back({Work::LAY_OUT, result, {}});
    }

    void take_marks(const Jobs& batch) {
        for (const Job& job : batch) {
            Held &result = *job.result, &from = *job.from[0];
            result.at.bitmap = from.at.bitmap;
            result.at.ranks = from.at.ranks;
            if (index_is_bitmap(from)) {
                copy_bitmap(queue_, result);  // which outlives the index
            } else {
                std::swap(result.bitmap, from.bitmap);
            }
            std::swap(result.ranks, from.ranks);
            if (from.counted)
                know_count(result, from.at.count);
            else
                uncounted_.push_back(&result);
            marked_.push_back(job);
        }
    }

    void take_values(const Jobs& batch, i64 step) {
        for (const Job& job : batch) {
            Held &result = *job.result, &from = *job.from[0];
            pack_.read_as_meant(from);
            result.clears = job.work == Work::ENCODE && from.clears;
            result.before = from.before;
            if (!result.clears || has_one_step(result.code)) read_values({&from});
            if (from.lent && job.work == Work::CHOOSE) copy_values(from);
            result.seen = from.seen && job.work == Work::DECODE;
            result.lent = from.lent;
            result.at.values = from.at.values;
            const bool moves = from.lent || landing(queue_, result) != nullptr;
            if (job.work == Work::ENCODE && moves && !has_one_step(result.code))
                take_apart(result);
            else
                std::swap(result.body, from.body);
            result.at.format = NOT_LAID_OUT;
            result.valued = true;
        }
        const Several results = results_of(batch);
        if (batch[0].work == Work::ENCODE) {
            make_wires(queue_, results);
            if (queue_.ok()) encode_values(queue_, results);
        } else if (batch[0].work == Work::CHOOSE) {  // who chooses may wait, and so messages have to be there
            choose_values(queue_, results, [&] { cross(step, {}, {}); });
        }
    }

    // Gives a result room of its own for what a code makes of values that stay, if it makes any.
    void take_apart(Held& held) {
        held.taken = held.at.values;
        held.lent = !is_meant(held);
        if (!held.lent) make_meanings(queue_, {&held});
    }

    // Copies values that a selection is going to change.
    void copy_values(Held& held) {
        const void* const tensor = held.at.values;
        make_meanings(queue_, {&held});
        queue_.copy(held.at.values, tensor, held.at.count * queue_.row_bytes);
        held.lent = false;
    }

    // Has capacity mode check the room of results, which all become empty where one has too little.
    void admit(Work work, const Several& results) {
        Segments roomy;
        for (const Held* held : results)
            if (held->roomy) roomy.push_back(held->at);
        if (roomy.empty()) return;
        if (work == Work::PLACE)
            pack_.admit(roomy);
        else
            capacity_.admit(roomy);
    }

    // Whether values are where they belong: sums are, and so are own values for which there was room when
    // they were packed. Values of other kinds are made anew.
    bool are_there(Work work, const Several& results) {
        if (work != Work::PLACE) return work == Work::LAY_OUT;
        bool all = true;
        for (const Held* held : results) all &= had_room(*held);
        if (!capacity_.on()) pack_.learn(results);
        for (Held* held : results)
            if (!all) release(queue_, held->body);
        return all;
    }

    void follow(const Jobs& batch, i64 step) {
        const Work work = batch[0].work;
        if (batch[0].takes_over()) return take_values(batch, step);
        const Several results = results_of(batch);
        const bool there = are_there(work, results);
        if (!there) make_bodies(queue_, results, queue_.row_bytes);
        if (!queue_.ok()) return;
        admit(work, results);
        for (Held* held : results) {
            held->valued = true;
            if (there)
                lay_out(queue_, *held);
            else if (is_bare_result(*held) && queue_.call.dense_out != nullptr && !makes_range(batch[0]))
                occupy_all(*held);
        }
        if (there) return;
        const bool in_ranges = makes_range(batch[0]);
        if (!in_ranges || work == Work::SPREAD) mark_ranges(queue_, pieces_of(batch));
        if (!in_ranges && work == Work::SPREAD) mark_ranges(queue_, results);
        if (in_ranges && work == Work::MERGE && any_encoded(batch)) return sum_encoded(batch);
        read_values(pieces_of(batch));
        const Made of = made_by(batch);
        if (work == Work::PLACE)
            pack_.place(of.to);
        else if (work == Work::MERGE)
            (in_ranges ? zenc::sum_ranges : zenc::merge)(queue_, of);
        else
            spread_values(batch, of);
        if (batch[0].marked) mark_absent(queue_, of.from, of.to);
    }

    // Spreads values. Complete results have the magnitudes of their sources, and are seen there.
    void spread_values(const Jobs& batch, const Made& of) {
        Several sources;
        for (const Job& job : batch) {
            if (job.result->complete) sources.push_back(job.from[0]);
            job.result->seen = job.result->complete;
        }
        raise_greatest(queue_, sources);
        spread(queue_, of.from, of.to);
    }

    // Prepares values for reading that may be there as bytes, or in the tensor.
    void read_values(const Several& which) {
        decode_now(queue_, which);
        for (const Held* held : which)
            if (held->lent) pack_.clear_signs();
    }

    static bool any_encoded(const Jobs& batch) {
        const Several from = pieces_of(batch);
        return std::any_of(from.begin(), from.end(), [](const Held* held) { return held->encoded; });
    }

    void sum_encoded(const Jobs& batch) {
        const Several from = pieces_of(batch);
        for (Held* held : from) pack_.read_as_meant(*held);
        sum_rows(queue_, results_of(batch), made_by(batch).pieces, from);
        for (Held* held : from) held->clears = false;
    }

    // Gives a dense result all slots, +0 where no piece has one. Its count stays that of the sum.
    void occupy_all(Held& result) {
        result.at.format = FORMAT_DENSE;
        zenc::fill(queue_, {result.at}, {result.at});
        rank(queue_, {result.at});
    }

    Queue& queue_;
    Communicator& group_;
    Capacity& capacity_;
    Pack& pack_;
    Jobs asked_, marked_;           // what has no bitmap yet, and what has no values yet
    Several uncounted_;             // their counts are on the device alone
    std::vector<Watched> watched_;  // not looked at yet
};

}  // namespace zenc
