// The choice of owners under `balanced by holders`: each unit is summed by one of the ranks that hold it. All
// ranks choose alike, from the index sets of all (docs/adr/0017-holders.md).
//
// The units that somebody holds, ascending, are numbered; owners[i] is the owner of number i. The units of
// one owner, ascending, are the slots of its part. So a part has no slot that is empty on all ranks, and its
// index never travels.
#pragma once

#include "zenc/loads.h"
#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Words that are looked at together: a block of each bitmap stays in the first cache.
constexpr u64 HOLDER_BLOCK = 256;

// What all ranks send and receive. What a rank comes to own counts when owners have been
// chosen together.
class Loads {
public:
    explicit Loads(u64 ranks) : ranks_(ranks), of_(ranks) {}

    bool failed() const { return of_.failed(); }

    // So many units of several holders are to come.
    void expect(u64 units) {
        left_ = units;
        room_ = chosen_together(left_, ranks_);
    }

    void hold(u64 rank, u64 units) { of_[rank].hold(units); }
    void own(u64 rank, u64 units, u64 holders) { of_[rank].own(ranks_, units, holders); }

    // The holder that owns a unit of several holders at the least cost, the first of equals.
    u16 own_by_cheapest(const u16* holders, u64 count) {
        const Cost cost(ranks_, count);
        u16 best = holders[0];
        i64 least = cost.of(of_[best]);
        for (u64 i = 1; i < count; ++i) {
            const i64 other = cost.of(of_[holders[i]]);
            best = other < least ? holders[i] : best;
            least = other < least ? other : least;
        }
        chosen_[number_] = {best, count};
        if (++number_ == room_) add_chosen();
        return best;
    }

private:
    struct Choice {
        u16 owner;
        u64 holders;
    };

    void add_chosen() {
        for (u64 i = 0; i < number_; ++i) own(chosen_[i].owner, 1, chosen_[i].holders);
        expect(left_ - number_);
        number_ = 0;
    }

    u64 ranks_;
    Scratch<Load> of_;
    Choice chosen_[CHOSEN_TOGETHER];
    u64 number_ = 0;
    u64 room_ = 0;  // choices that are made together
    u64 left_ = 0;
};

// any = the units of a block that somebody holds, alone = those that one rank holds.
inline void find_alone(u64 ranks, const u64* const* bitmaps, u64 first, u64 n, u64* any, u64* alone) {
    clear_bytes(any, n * 8);
    clear_bytes(alone, n * 8);  // holds those of several ranks first
    for (u64 k = 0; k < ranks; ++k) {
        const u64* const words = bitmaps[k] + first;
        for (u64 w = 0; w < n; ++w) {
            alone[w] |= any[w] & words[w];
            any[w] |= words[w];
        }
    }
    for (u64 w = 0; w < n; ++w) alone[w] = any[w] & ~alone[w];
}

// What is known before anything is chosen: what each rank holds, and what it alone can own.
ZENC_SHARED_CODE inline void add_given_loads(u64 ranks, const u64* const* bitmaps, u64 words, Loads& loads) {
    u64 any[HOLDER_BLOCK];
    u64 alone[HOLDER_BLOCK];
    u64 several = 0;
    for (u64 first = 0; first < words; first += HOLDER_BLOCK) {
        const u64 n = words - first < HOLDER_BLOCK ? words - first : HOLDER_BLOCK;
        find_alone(ranks, bitmaps, first, n, any, alone);
        several += population(any, n) - population(alone, n);
        for (u64 k = 0; k < ranks; ++k) {
            const u64* const mine = bitmaps[k] + first;
            u64 forced = 0;
            for (u64 w = 0; w < n; ++w) forced += population(mine[w] & alone[w]);
            loads.hold(k, population(mine, n));
            loads.own(k, forced, 1);
        }
    }
    loads.expect(several);
}

// The holders of the units of one word: those of bit b are ranks[b * size] and on, ascending.
class WordHolders {
public:
    explicit WordHolders(u64 size) : size_(size), ranks_(64 * size) {}

    bool failed() const { return ranks_.failed(); }

    // Returns the bits that somebody holds.
    u64 collect(const u64* const* bitmaps, u64 word) {
        u64 any = 0;
        clear_bytes(counts_, sizeof counts_);
        for (u64 k = 0; k < size_; ++k) {
            any |= bitmaps[k][word];
            for_each_bit(bitmaps[k][word],
                         [&](u64 bit) { ranks_[bit * size_ + counts_[bit]++] = static_cast<u16>(k); });
        }
        return any;
    }

    u64 count(u64 bit) const { return counts_[bit]; }
    const u16* holders(u64 bit) const { return ranks_.get() + bit * size_; }

private:
    u64 size_;
    Scratch<u16> ranks_;
    u32 counts_[64];
};

// The owner of every unit that one of `ranks` < 2^16 ranks holds, from a bitmap over all units of each rank.
// Units of one holder are its own; any other goes to the holder that is cheapest, in ascending order,
// up to CHOSEN_TOGETHER at a time by the same loads. Linear in the number of units that ranks hold, and in
// the words.
//
// owners [units of the union]; counts [ranks, ranks]: how many units rank k holds of those that rank p owns,
// at k * ranks + p; digest: 64 bits of all that was chosen. Returns the units of the union, or NO_MEMORY.
inline i64 choose_owners(u64 ranks, const u64* const* bitmaps, u64 words, u16* owners, u64* counts,
                         u64* digest) {
    Loads loads(ranks);
    WordHolders held(ranks);
    if (loads.failed() || held.failed()) return NO_MEMORY;
    add_given_loads(ranks, bitmaps, words, loads);
    clear_bytes(counts, ranks * ranks * 8);
    u64 chosen = WordDigest::of_ranks(ranks);
    const u16* const start = owners;
    for (u64 w = 0; w < words; ++w) {
        const u64 any = held.collect(bitmaps, w);
        if (any == 0) continue;
        WordDigest of_word(w, any);
        for_each_bit(any, [&](u64 bit) {
            const u64 count = held.count(bit);
            const u16* const holders = held.holders(bit);
            const u16 owner = count > 1 ? loads.own_by_cheapest(holders, count) : holders[0];
            for (u64 i = 0; i < count; ++i) ++counts[holders[i] * ranks + owner];
            of_word.add(owner);
            *owners++ = owner;
        });
        chosen += of_word.value();
    }
    *digest = chosen;
    return owners - start;
}

}  // namespace zenc
