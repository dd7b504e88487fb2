// Loads of ranks, by which an owner is chosen among the holders of a unit, and the digest that proves that
// ranks chose alike (docs/adr/0017-holders.md). Each target has its own loop over the units of a call.
#pragma once

#include "zenc/mix.h"

namespace zenc {

// The load of a rank: what it sends and receives, in messages of one unit, as far as that is known. A unit
// that c of n ranks hold takes c - 1 messages to its owner and n - 1 from it: each holder sends one, and the
// owner n - 2 more; each rank that does not own it receives one, and the owner c - 2 more.
//
// To own a unit costs as much as it makes the squares of all loads grow. Received messages count more, or the
// last units would find them uneven: few units have many holders, and those with two, the most, do not change
// them. Where messages are equal, so become the parts. Of the holders with the least cost, the first becomes
// the owner.
struct Load {
    i64 of_two;  // the cost for a unit of two holders: what is sent counts n - 2 times, a unit owned once
    i64 beyond;  // and for each holder more: what is received in excess
    i64 owned;

    ZENC_HD void hold(u64 ranks, u64 units) {
        of_two += static_cast<i64>(units) * (static_cast<i64>(ranks) - 2) * MESSAGE_WEIGHT;
    }

    // Adds units that are owned, whose holders beyond two are `more_holders` in all.
    ZENC_HD void own(u64 ranks, u64 units, i64 more_holders) {
        const i64 sent = static_cast<i64>(ranks) - 2;
        of_two += static_cast<i64>(units) * (sent * sent * MESSAGE_WEIGHT + 1);
        beyond += more_holders * RECEIVED_WEIGHT * MESSAGE_WEIGHT;
        owned += static_cast<i64>(units);
    }

    // The cost, if the rank owned some units like this one already.
    ZENC_HD i64 cost(u64 ranks, i64 more_holders, u32 ahead) const {
        const i64 sent = static_cast<i64>(ranks) - 2;
        const i64 each = sent * sent * MESSAGE_WEIGHT + 1;
        const i64 more = more_holders * more_holders * RECEIVED_WEIGHT * MESSAGE_WEIGHT;
        return of_two + more_holders * beyond + ahead * (each + more);
    }
};

// The number of units whose owners are chosen by the same loads, of those with several holders that are left:
// fewer and fewer towards the end, so that the last ones level what the others left uneven.
ZENC_HD inline u64 chosen_together(u64 left, u64 ranks) {
    if (left > 16 * ranks * (CHOSEN_TOGETHER - 1)) return CHOSEN_TOGETHER;
    const u32 few = static_cast<u32>(left + 4 * ranks - 1) / static_cast<u32>(4 * ranks),
              many = (few + 3) / 4;
    return many > FEW_TOGETHER ? many : few < FEW_TOGETHER ? few : FEW_TOGETHER;
}

// The number of units like this one that a rank is taken to own already, where some are chosen together:
// different for different units, or all units with the same holders would go to one of them.
ZENC_HD inline u32 drawn_ahead(u64 unit, u32 rank, u64 together) {
    return draw<true>(static_cast<u32>(unit), rank * static_cast<u32>(GOLDEN), static_cast<u32>(together));
}

// 64 bits of the owners of all units in one word of the union, in their order. The digest of a call is that
// of the number of ranks and the sum of all words that are not empty, in any order.
class WordDigest {
public:
    ZENC_HD WordDigest(u64 word, u64 any) : bits_(step(step(GOLDEN, word), any)) {}

    ZENC_HD void add(u64 owner) { bits_ = step(bits_, owner); }
    ZENC_HD u64 value() const { return mix(bits_); }

    ZENC_HD static u64 of_ranks(u64 ranks) { return mix(ranks); }

private:
    ZENC_HD static u64 step(u64 bits, u64 what) {
        bits = (bits ^ what) * GOLDEN;
        return bits ^ bits >> 32;
    }

    u64 bits_;
};

}  // namespace zenc
