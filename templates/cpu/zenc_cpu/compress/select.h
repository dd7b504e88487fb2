// Selections by magnitudes that are given: a bit for each unit that is taken.
#pragma once

#include "zenc_cpu/compress/take.h"

namespace zenc {

// The ways to choose units, with the numbers of zenc/runtime/lossy/parameters.py.
enum ChoiceKind { FROM, TOP, BISECTED, SAMPLED, OF_BLOCKS, AT_RANDOM };

struct UnitChoice {
    i64 kind;
    u64 a;  // FROM: the magnitude; AT_RANDOM: the chance, of 2^31; else how many units
    u64 b;  // BISECTED: steps; SAMPLED: units of the sample; OF_BLOCKS: units of a block
    u64 key;
};

// The units that are taken of a block: k, and the same share of a shorter last one, at least one.
inline u64 share_of_block(u64 k, u64 length, u64 block) {
    const u64 share = length == block ? k : k * length / block;
    return share == 0 ? 1 : share;
}

// Units whose words, but for their upper bit, are among `chance` of 2^31; asked 64 by 64.
class RandomMarks {
public:
    RandomMarks(u64 key, u64 chance) : key_(key), chance_(chance) {}

    u64 next(u64 n, u64 first) {
        if (first % DRAWN_TOGETHER == 0) random_words(key_, first, 1, words_);
        float bits[MARKED];
        std::memcpy(bits, words_ + first % DRAWN_TOGETHER, sizeof bits);
        return chance_ == 0 ? 0 : marks_from(bits, n, static_cast<u32>((1U << 31) - chance_));
    }

private:
    const u64 key_, chance_;
    u32 words_[DRAWN_TOGETHER];
};

// The threshold of a choice that has one for all n units. False: there is no memory.
inline bool threshold_of(const float* values, u64 n, const UnitChoice& choice, Threshold& found) {
    const auto steps = static_cast<i64>(choice.b);
    switch (choice.kind) {
        case TOP:
            return exact_threshold(values, n, choice.a < n ? choice.a : n, found);
        case BISECTED:
            return bisected_threshold(values, n, choice.a, steps, found);
        case SAMPLED:
            return sampled_threshold([&](u64 i) { return values[i]; }, n, choice.a, choice.b, choice.key,
                                     found);
    }
    found = {static_cast<u32>(choice.a), EVERY};
    return true;
}

// Marks of units, whose magnitudes become 0 as they are taken: that is what is left of them.
struct Marking {
    float* magnitudes;
    u64* marks;

    void set(u64 unit) const {
        marks[unit / MARKED] |= 1ULL << unit % MARKED;
        magnitudes[unit] = 0;
    }
};

// Marks those of n values that a threshold takes; unit(i) is the unit of value i.
template <class Unit>
inline void mark_taken(const Marking& to, const float* values, u64 n, Threshold threshold, Unit unit) {
    for_words(n, [&](u64 first, u64 length) {
        for_marks(marks_of(values + first, length, threshold), [&](u64 i) { to.set(unit(first + i)); });
    });
}

// Marks the k greatest of a part's n units, in its order. Returns false if there is no memory.
inline bool mark_part(const Marking& to, const i64* units, u64 n, u64 k) {
    if (n == 0) return true;
    const Room<float> values(n);
    if (values.get() == nullptr) return false;
    for (u64 i = 0; i < n; ++i) values[i] = to.magnitudes[units[i]];
    Threshold threshold{};
    if (!exact_threshold(values.get(), n, k, threshold)) return false;
    mark_taken(to, values.get(), n, threshold, [&](u64 i) { return static_cast<u64>(units[i]); });
    return true;
}

// Marks units of n. `last` is the last threshold that was found. Returns false if there is no memory.
inline bool mark(const Marking& to, u64 n, const UnitChoice& choice, Threshold& last) {
    if (choice.kind == AT_RANDOM) {
        RandomMarks drawn(choice.key, choice.a);
        for_words(n, [&](u64 first, u64 length) {
            for_marks(drawn.next(length, first), [&](u64 i) { to.set(first + i); });
        });
        return true;
    }
    const u64 block = choice.kind == OF_BLOCKS ? choice.b : n;
    for (u64 start = 0; start < n; start += block) {
        const u64 length = n - start < block ? n - start : block;
        const u64 k = share_of_block(choice.a, length, block);
        const UnitChoice here = choice.kind == OF_BLOCKS ? UnitChoice{TOP, k, 0, 0} : choice;
        const float* const values = to.magnitudes + start;
        if (!threshold_of(values, length, here, last)) return false;
        mark_taken(to, values, length, last, [&](u64 i) { return start + i; });
    }
    return true;
}

}  // namespace zenc
