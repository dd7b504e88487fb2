// The values of segments, made when their counts are known: until then it is kept what is to be done.
#pragma once

#include "zenc_host/call/segment_state.h"
#include "zenc_host/launch/expand.h"
#include "zenc_host/launch/merge.h"
#include "zenc_host/launch/pack.h"

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
            capacity_.weigh(roomy);
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

}  // namespace zenc
