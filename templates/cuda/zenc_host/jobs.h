// Segments made from others: bitmaps and ranks when a step needs them, values as soon as counts are known.
// What is asked for in a row is done in one launch where it can be.
#pragma once

#include "zenc_host/messages.h"
#include "zenc_host/pack.h"
#include "zenc_host/segment_kernels.h"
#include "zenc_host/segments.h"

namespace zenc {

enum class Way { PLACE, MERGE, SPREAD, LAY_OUT };

// How the values of `result` come from those of others; PLACE makes those of all own segments, and LAY_OUT
// has them already.
struct Recipe {
    Way way;
    Held* result;
    Several from;
};

// Recipes, in an order in which they can be followed.
class Values {
public:
    Values(Queue& queue, Capacity& capacity, Pack& pack, u64 unit_bytes)
        : queue_(queue), capacity_(capacity), pack_(pack), unit_bytes_(unit_bytes) {}

    void add(Recipe recipe) { recipes_.push_back(std::move(recipe)); }

    // Makes all values. All counts are known.
    void make() {
        for (u64 first = 0; first < recipes_.size() && queue_.ok();) {
            u64 end = first;
            while (end < recipes_.size() && goes_with(recipes_[first], recipes_[end])) ++end;
            follow(first, end);
            first = end;
        }
        recipes_.clear();
    }

    // In capacity mode nothing is left of results for which there is no room.
    void admit(Way way, const Several& results) {
        Segments roomy;
        for (const Held* held : results)
            if (held->roomy) roomy.push_back(held->at);
        if (roomy.empty()) return;
        if (way == Way::PLACE)
            pack_.admit(roomy);
        else
            capacity_.admit(roomy);
    }

private:
    // Whether two recipes can be followed in one launch.
    static bool goes_with(const Recipe& first, const Recipe& other) {
        if (first.way != other.way) return false;
        for (const Held* held : other.from)
            if (!held->valued) return false;
        return true;
    }

    // Whether values are where they belong: sums, and own ones for which there was room when they were
    // packed. What there is of others is not used.
    bool are_there(Way way, const Several& results) {
        if (way == Way::LAY_OUT) return true;
        if (way != Way::PLACE) return false;
        bool all = true;
        for (const Held* held : results) all &= had_room(*held, unit_bytes_);
        if (!capacity_.on()) pack_.learn(results);
        for (Held* held : results)
            if (!all) release(queue_, held->body);
        return all;
    }

    void follow(u64 first, u64 end) {
        Several results;
        for (u64 i = first; i < end; ++i) results.push_back(recipes_[i].result);
        if (are_there(recipes_[first].way, results)) {
            admit(recipes_[first].way, results);
            for (Held* held : results) {
                lay_out(queue_, *held, unit_bytes_);
                held->valued = true;
            }
            return;
        }
        make_bodies(queue_, results, unit_bytes_);
        if (!queue_.ok()) return;
        admit(recipes_[first].way, results);
        for (Held* held : results)
            if (is_bare_result(*held) && queue_.call.dense_out != nullptr) occupy_all(*held);
        Segments to, from;
        std::vector<Pieces> pieces;
        for (u64 i = first; i < end; ++i) {
            to.push_back(recipes_[i].result->at);
            pieces.push_back({from.size(), recipes_[i].from.size()});
            for (const Held* held : recipes_[i].from) from.push_back(held->at);
        }
        if (recipes_[first].way == Way::PLACE)
            pack_.place(to);
        else if (recipes_[first].way == Way::MERGE)
            merge(queue_, to, pieces, from);
        else
            spread(queue_, from, to);
        for (Held* held : results) held->valued = true;
    }

    // A dense result has a row for every slot: of one that no piece has, the sum of nothing. The count stays
    // that of the sum.
    void occupy_all(Held& result) {
        result.at.format = FORMAT_DENSE;
        fill(queue_, {result.at}, {result.at});
        rank(queue_, {result.at});
    }

    Queue& queue_;
    Capacity& capacity_;
    Pack& pack_;
    const u64 unit_bytes_;
    std::vector<Recipe> recipes_;
};

enum class Change { MERGE, FILL, SPARSIFY };

struct Job {
    Change change;
    Held* result;
    Several from;
};

class SegmentJobs {
public:
    SegmentJobs(Queue& queue, Communicator& group, Capacity& capacity, Pack& pack, u64 unit_bytes)
        : queue_(queue), group_(group), unit_bytes_(unit_bytes), values_(queue, capacity, pack, unit_bytes) {}

    // A segment of this rank's own gradient, which is marked already.
    void own(Held* held) {
        if (!held->counted) uncounted_.push_back(held);
        values_.add({Way::PLACE, held, {}});
    }

    // The sum of segments of one part, added in this order.
    void merge(Held* result, Several from) { jobs_.push_back({Change::MERGE, result, std::move(from)}); }

    // The same for a result that is marked, and whose count is known.
    void sum(Held* result, Several from) { values_.add({Way::MERGE, result, std::move(from)}); }

    // The same segment with the slots that `format` fills up: all, or those of its blocks.
    void fill(Held* result, Held* from, i64 format) {
        result->at.format = format;
        jobs_.push_back({Change::FILL, result, {from}});
    }

    // The same segment without the units that are all zero.
    void sparsify(Held* result, Held* from) { jobs_.push_back({Change::SPARSIFY, result, {from}}); }

    // Something that the next crossing looks at.
    void watch(const Watched& word) { watched_.push_back(word); }

    // What the next crossing would look at, if there were one.
    std::vector<Expected> watched() const {
        std::vector<Expected> found;
        for (const Watched& each : watched_) found.push_back({each.word, each.right});
        return found;
    }

    // Bitmaps and ranks of all that was asked for.
    void mark(i64 step) {
        for (u64 first = 0; first < jobs_.size() && queue_.ok();) {
            u64 end = first + 1;
            while (end < jobs_.size() && goes_with(first, end)) ++end;
            if (needs_values(first, end)) make_values(step);
            mark(first, end);
            first = end;
        }
        if (queue_.ok()) jobs_.clear();
    }

    // Values of all that is marked. The device is asked for counts that the host does not know yet.
    void make_values(i64 step) {
        if (!uncounted_.empty()) cross(step, {}, {});
        values_.make();
    }

    // Exchanges controls, and learns all counts, and what else is wanted.
    void cross(i64 step, const Messages& sends, const Messages& receives,
               const std::vector<Wanted>& wanted = {}) {
        HostSync(queue_, group_, sends, receives).run(step, uncounted_, watched_, wanted);
        uncounted_.clear();
        watched_.clear();
    }

private:
    // Whether job `other` can be done in one launch with those from `first` up to it.
    bool goes_with(u64 first, u64 other) const {
        if (jobs_[first].change != jobs_[other].change) return false;
        for (u64 i = first; i < other; ++i)
            for (const Held* held : jobs_[other].from)
                if (held == jobs_[i].result) return false;
        return true;
    }

    // Whether the values of a sum are made with its bitmap: of narrow rows, unless they lie in a result,
    // which is made when it is counted.
    bool is_summed_at_once(const Job& job) const {
        return job.change == Change::MERGE && unit_bytes_ < WIDE_ROW && !job.result->is_result;
    }

    bool needs_values(u64 first, u64 end) const {
        for (u64 i = first; i < end; ++i)
            for (const Held* held : jobs_[i].from)
                if (!held->valued && (jobs_[i].change == Change::SPARSIFY || is_summed_at_once(jobs_[i])))
                    return true;
        return false;
    }

    // Returns those that are summed at once.
    Several make_room_for_sums(u64 first, u64 end) {
        Several summed;
        for (u64 i = first; i < end; ++i) {
            if (!is_summed_at_once(jobs_[i])) continue;
            Held* const result = jobs_[i].result;
            summed.push_back(result);
            result->valued = true;
            if (result->roomy) continue;
            result->at.count = 0;
            for (const Held* held : jobs_[i].from) result->at.count += held->at.count;
            if (result->at.count > result->at.slots) result->at.count = result->at.slots;
        }
        make_bodies_ahead(queue_, summed, unit_bytes_);
        return summed;
    }

    void mark(u64 first, u64 end) {
        Several results;
        Segments to, from;
        std::vector<Pieces> pieces;
        for (u64 i = first; i < end; ++i) results.push_back(jobs_[i].result);
        make_marks(queue_, results);
        const Several summed = make_room_for_sums(first, end);
        for (u64 i = first; i < end; ++i) {
            to.push_back(jobs_[i].result->at);
            pieces.push_back({from.size(), jobs_[i].from.size()});
            for (const Held* held : jobs_[i].from) from.push_back(held->at);
        }
        if (!queue_.ok()) return;
        const Change change = jobs_[first].change;
        if (change == Change::MERGE)
            zenc::sum(queue_, to, pieces, from);
        else if (change == Change::FILL)
            zenc::fill(queue_, from, to);
        else
            mark_nonzero(queue_, from, to);
        if (change != Change::MERGE) rank(queue_, to);
        values_.admit(Way::MERGE, summed);
        for (u64 i = first; i < end; ++i) settle(jobs_[i]);
    }

    // The count of a result is known if it has all slots; else it will cross, unless room was made for it.
    void settle(Job& job) {
        Held* const result = job.result;
        bool full = job.change == Change::FILL && result->at.format == FORMAT_DENSE;
        for (const Held* held : job.from)
            full |= job.change != Change::SPARSIFY && held->counted && !held->roomy &&
                    held->at.count == held->at.slots;
        if (full && !result->roomy)
            know_count(*result, result->at.slots);
        else if (!result->counted)
            uncounted_.push_back(result);
        if (!is_summed_at_once(job))
            values_.add(
                {job.change == Change::MERGE ? Way::MERGE : Way::SPREAD, result, std::move(job.from)});
        else if (!result->roomy)
            values_.add({Way::LAY_OUT, result, {}});
    }

    Queue& queue_;
    Communicator& group_;
    const u64 unit_bytes_;
    Values values_;
    std::vector<Job> jobs_;
    Several uncounted_;             // their counts are on the device alone
    std::vector<Watched> watched_;  // not looked at yet
};

}  // namespace zenc
