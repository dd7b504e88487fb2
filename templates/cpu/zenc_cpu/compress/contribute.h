// A contribution of single values, cut in what is sent and what is left in the pass that accumulates it.
//
// The k greatest are not known before that pass. A sample says what they likely reach; whatever does is
// taken, and those that turn out to be too many are given back.
#pragma once

#include "zenc_cpu/compress/select.h"

namespace zenc {

struct Contributed {
    Accumulated all;
    Taken taken;
    i64 threshold;  // the magnitude that was last found
};

// marks(totals, n, first, words) writes a bit for each of n totals that is taken.
template <class T, class Marks>
inline Contributed contribute_marked(const Contribution<T>& of, float* velocity, Marks marks) {
    Squares squares;
    u64 count = 0;
    const auto cut = [&](const Contribution<T>& here, float* totals, u64 first) {
        u64 words[STRETCH / MARKED];
        marks(totals, here.n, first, words);
        count += take_marked(totals, here.n, words, here.gradient, velocity ? velocity + first : nullptr);
        squares.add(totals, here.n);
    };
    const Accumulated all = accumulate_stretches(of, cut);
    return {all, {static_cast<i64>(count), squares.sum()}, 0};
}

// Contributes in two passes: one accumulates, one takes. Returns false if there is no memory.
template <class T, class Find>
inline bool contribute_twice(const Contribution<T>& of, Find find, Contributed& found) {
    found.all = accumulate(of);
    Threshold threshold{};
    if (!find(of.left, found.all, threshold)) return false;
    found.taken = take(of.left, of.n, threshold, of.gradient, of.velocity_out);
    found.threshold = threshold.magnitude;
    return true;
}

// Gives back what a threshold above that of the candidates does not take.
template <class T>
inline void give_back(const Contribution<T>& of, Candidates& candidates, Threshold threshold, Taken& taken) {
    candidates.settle(threshold, [&](u64 place, bool is_taken) {
        if (of.velocity_out) of.velocity_out[place] = is_taken ? 0.0F : of.velocity_out[place];
    });
    candidates.visit([&](u64 place, float value) {
        const double rest = of.left[place], whole = value;
        of.gradient[place] = Type<T>::round(0.0F);
        of.left[place] = value;
        taken.squares += whole * whole - rest * rest;
        --taken.count;
    });
}

// The k greatest; finish(threshold, accumulated) makes of their threshold the one that takes. False: there is
// no memory.
template <class T, class Finish>
inline bool contribute_top(const Contribution<T>& of, u64 k, Finish finish, Contributed& found) {
    const auto find = [&](const float* left, const Accumulated& all, Threshold& threshold) {
        const bool done = exact_threshold(left, of.n, k, threshold);
        threshold = finish(threshold, all);
        return done;
    };
    const u32 least = likely_below([&](u64 i) { return of.total(i); }, of.n, k);
    if (least == 0) return contribute_twice(of, find, found);
    Candidates candidates(of.n, k, least);
    found = contribute_marked(of, nullptr, [&](const float* totals, u64 n, u64 first, u64* marks) {
        candidates.add(totals, n, first, marks);
    });
    Threshold threshold{};
    bool helped = candidates.help() && candidates.threshold(threshold);
    if (helped) threshold = finish(threshold, found.all);
    helped = helped && threshold.magnitude >= least;
    give_back(of, candidates, helped ? threshold : Threshold{MAGNITUDE, 0}, found.taken);
    found.threshold = threshold.magnitude;
    if (helped) return true;
    if (!find(of.left, found.all, threshold)) return false;
    found.taken = take(of.left, of.n, threshold, of.gradient, of.velocity_out);
    found.threshold = threshold.magnitude;
    return true;
}

// Block by block, each of which stays in a cache.
template <class T>
inline bool contribute_blocks(const Contribution<T>& of, u64 block, u64 k, Contributed& found) {
    found = {};
    for (u64 first = 0; first < of.n; first += block) {
        const u64 length = of.n - first < block ? of.n - first : block;
        const u64 share = share_of_block(k, length, block);
        Contributed here;
        const auto find = [&](const float* left, const Accumulated&, Threshold& threshold) {
            return exact_threshold(left, length, share, threshold);
        };
        if (!contribute_twice(of.part(first, length), find, here)) return false;
        found.all.squares += here.all.squares;
        found.all.greatest = here.all.greatest > found.all.greatest ? here.all.greatest : found.all.greatest;
        found.taken = {found.taken.count + here.taken.count, found.taken.squares + here.taken.squares};
    }
    return true;
}

// Whatever `choice` takes. False: there is no memory.
template <class T>
inline bool contribute(const Contribution<T>& of, const UnitChoice& choice, Contributed& found) {
    const auto value = [&](u64 i) { return of.total(i); };
    Threshold threshold{static_cast<u32>(choice.a), EVERY};
    const auto as_it_is = [](Threshold exact, const Accumulated&) { return exact; };
    const auto halved = [&](Threshold exact, const Accumulated& all) {
        return bisected(exact.magnitude, static_cast<u32>(all.greatest), of.n, static_cast<i64>(choice.b));
    };
    switch (choice.kind) {
        case TOP:
            return contribute_top(of, choice.a, as_it_is, found);
        case BISECTED:
            return contribute_top(of, choice.a, halved, found);
        case OF_BLOCKS:
            return contribute_blocks(of, choice.b, choice.a, found);
        case SAMPLED:
            if (!sampled_threshold(value, of.n, choice.a, choice.b, choice.key, threshold)) return false;
            break;
        case AT_RANDOM: {
            RandomMarks drawn(choice.key, choice.a);
            found = contribute_marked(of, of.velocity_out, [&](const float*, u64 n, u64 first, u64* marks) {
                for_words(n, [&](u64 start, u64 length) {
                    marks[start / MARKED] = drawn.next(length, first + start);
                });
            });
            return true;
        }
    }
    found = contribute_marked(of, of.velocity_out, [&](const float* totals, u64 n, u64, u64* marks) {
        for_words(n, [&](u64 first, u64 length) {
            marks[first / MARKED] = marks_from(totals + first, length, threshold.magnitude);
        });
    });
    found.threshold = threshold.magnitude;
    return true;
}

}  // namespace zenc
