// The choice of owners under `balanced by holders`: each unit is summed by one of the ranks that hold it. All
// ranks choose alike, from the index sets of all (docs/adr/0017-holders.md).
//
// The units that somebody holds, ascending, are numbered; owners[i] is the owner of number i. The units of
// one owner, ascending, are the slots of its part. So a part has no slot that is empty on all ranks, and its
// index never travels.
#pragma once

#include "zenc/loads.h"
#include "zenc_cpu/owners/held_units.h"
#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// The loads of all ranks. Units that a rank comes to own count once owners have been chosen together.
class Loads {
public:
    explicit Loads(u64 ranks) : ranks_(ranks), of_(ranks) {}

    bool failed() const { return of_.failed(); }

    void expect(u64 units) {
        left_ = units;
        room_ = chosen_together(left_, ranks_);
    }

    void hold(u64 rank, u64 units) { of_[rank].hold(ranks_, units); }

    // Adds units that a rank owns, with as many holders each.
    void own(u64 rank, u64 units, u64 holders) {
        of_[rank].own(ranks_, units, static_cast<i64>(units) * (static_cast<i64>(holders) - 2));
    }

    // The holder that owns a unit of several holders at the least cost, the first of equals.
    u16 own_by_cheapest(const u16* holders, u64 count) {
        const i64 more = static_cast<i64>(count) - 2;
        const auto cost = [&](u16 rank) {
            return of_[rank].cost(ranks_, more, drawn_ahead(unit_, rank, room_));
        };
        u16 best = holders[0];
        i64 least = cost(best);
        for (u64 i = 1; i < count; ++i) {
            const i64 other = cost(holders[i]);
            best = other < least ? holders[i] : best;
            least = other < least ? other : least;
        }
        ++unit_;
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
    u64 unit_ = 0;  // the number of the next one
    u64 left_ = 0;
};

// Adds the loads that are known before anything is chosen: units that each rank holds, and those that it
// alone can own, which `counts` [ranks, ranks] gets, too, unless it is null.
ZENC_SHARED_CODE inline void add_given_loads(u64 ranks, const u64* const* bitmaps, u64 words, Loads& loads,
                                             u64* counts) {
    u64 of_several = 0;
    for_each_block(ranks, bitmaps, words, [&](const HolderBlock& block) {
        for (u64 w = 0; w < block.size(); ++w) of_several += population(block.several(w));
        for (u64 k = 0; k < ranks; ++k) {
            const u64* const mine = bitmaps[k] + block.first();
            u64 forced = 0;
            for (u64 w = 0; w < block.size(); ++w) forced += population(mine[w] & ~block.several(w));
            loads.hold(k, population(mine, block.size()));
            loads.own(k, forced, 1);
            if (counts != nullptr) counts[k * ranks + k] += forced;
        }
    });
    loads.expect(of_several);
}

// The owner of every unit that one of `ranks` < 2^16 ranks holds, from a bitmap over all units of each rank.
// Units of one holder are its own; any other goes to the holder that is cheapest, in ascending order,
// up to CHOSEN_TOGETHER at a time by the same loads. Linear in the number of units that ranks hold, and in
// the words.
//
// owners [units of the union]; counts [ranks, ranks], or null: how many units rank k holds of those that rank
// p owns, at k * ranks + p; digest: 64 bits of all that was chosen. Returns the units of the union, or
// NO_MEMORY.
inline i64 choose_owners(u64 ranks, const u64* const* bitmaps, u64 words, u16* owners, u64* counts,
                         u64* digest) {
    Loads loads(ranks);
    WordHolders held(ranks);
    if (loads.failed() || held.failed()) return NO_MEMORY;
    if (counts != nullptr) clear_bytes(counts, ranks * ranks * 8);
    add_given_loads(ranks, bitmaps, words, loads, counts);
    u64 chosen = WordDigest::of_ranks(ranks);
    const u16* const start = owners;
    const auto choose = [&](u64 bit) {
        const u64 count = held.find(bit);
        const u16* const holders = held.ranks();
        const u16 owner = loads.own_by_cheapest(holders, count);
        for (u64 i = 0; counts != nullptr && i < count; ++i) ++counts[holders[i] * ranks + owner];
        return owner;
    };
    for_each_block(ranks, bitmaps, words, [&](HolderBlock& block) {
        block.read_digits();
        for (u64 w = 0; w < block.size(); ++w) {
            const u64 any = block.any(w), several = block.several(w);
            if (any == 0) continue;
            if (several != 0) held.collect(bitmaps, block.first() + w);
            WordDigest of_word(block.first() + w, any);
            for_each_bit(any, [&](u64 bit) {
                const u64 owner = several >> bit & 1 ? choose(bit) : block.only_holder(w, bit);
                of_word.add(owner);
                *owners++ = static_cast<u16>(owner);
            });
            chosen += of_word.value();
        }
    });
    *digest = chosen;
    return owners - start;
}

// The slots that each rank occupies in each part. outs [ranks, ranks]: for rank k and part p, at k * ranks +
// p, the address of a cleared bitmap of words_of(units of owner p) words, or null where nobody asks for it.
// Returns 0 or NO_MEMORY.
inline i64 mark_parts(u64 ranks, const u64* const* bitmaps, u64 words, const u16* owners, u64* const* outs) {
    const Scratch<u64> next(ranks);  // the slot of the next unit of each part
    const Scratch<u8> asked(ranks);  // whether anybody's slots of a part are
    WordHolders held(ranks);
    if (next.failed() || asked.failed() || held.failed()) return NO_MEMORY;
    for (u64 i = 0; i < ranks * ranks; ++i) asked[i % ranks] |= outs[i] != nullptr;
    for_each_block(ranks, bitmaps, words, [&](const HolderBlock& block) {
        for (u64 w = 0; w < block.size(); ++w) {
            if (block.any(w) != 0) held.collect(bitmaps, block.first() + w);
            for_each_bit(block.any(w), [&](u64 bit) {
                const u64 part = *owners++, slot = next[part]++;
                if (!asked[part]) return;
                const u64 count = held.find(bit);
                for (u64 i = 0; i < count; ++i)
                    if (u64* const out = outs[held.ranks()[i] * ranks + part])
                        out[slot / 64] |= 1ULL << (slot % 64);
            });
        }
    });
    return 0;
}

// A number of bytes that the compiler knows.
template <u64 BYTES>
struct Exactly {
    constexpr operator u64() const { return BYTES; }
};

// run(row_bytes), as a constant where a row is one value, which is then moved by one instruction.
template <class Run>
inline i64 with_row_bytes(u64 row_bytes, Run run) {
    if (row_bytes == 2) return run(Exactly<2>{});
    if (row_bytes == 4) return run(Exactly<4>{});
    if (row_bytes == 8) return run(Exactly<8>{});
    return run(row_bytes);
}

// The places where the next row of each part, or whatever else comes in order, is read or written.
template <class Byte>
class Cursors {
public:
    Cursors(u64 parts, Byte* const* starts) : at_(parts) {
        if (!failed()) copy_bytes(at_.get(), starts, parts * sizeof(Byte*));
    }

    bool failed() const { return at_.failed(); }

    Byte* next(u64 part, u64 row_bytes) const {
        Byte* const row = at_[part];
        at_[part] += row_bytes;
        return row;
    }

private:
    Scratch<Byte*> at_;
};

// Splits one rank's rows [count, row_bytes] of the units in `own`, ascending, to outs: for each part the
// address of its rows. `any` are the held units. Returns 0 or NO_MEMORY.
inline i64 split_rows(const u64* any, const u64* own, u64 words, const u16* owners, u64 parts,
                      const u8* values, u64 row_bytes, u8* const* outs) {
    const Cursors<u8> cursors(parts, outs);
    if (cursors.failed()) return NO_MEMORY;
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 w = 0; w < words; owners += population(any[w++]))
            for_each_bit(own[w], [&](u64 bit) {
                const u16 owner = owners[population(any[w] & low_mask(bit))];
                copy_short(cursors.next(owner, bytes), values, bytes);
                values += bytes;
            });
        return 0;
    });
}

// The units that somebody holds as a list, ascending, and for each part which of them are its slots: their
// numbers, to outs [parts]. units_out [count]. Returns count or NO_MEMORY.
inline i64 list_units(const u64* any, u64 words, const u16* owners, u64 parts, i64* units_out,
                      u64* const* outs) {
    const Cursors<u64> cursors(parts, outs);
    if (cursors.failed()) return NO_MEMORY;
    u64 count = 0;
    for (u64 w = 0; w < words; ++w)
        for_each_bit(any[w], [&](u64 bit) {
            units_out[count] = static_cast<i64>(64 * w + bit);
            *cursors.next(owners[count], 1) = count;
            ++count;
        });
    return static_cast<i64>(count);
}

// The rows of one part, whole, to their places among those of all units. numbers [count], out [units of the
// union, row_bytes]. Returns 0.
inline i64 place_rows(const u64* numbers, u64 count, const u8* values, u64 row_bytes, u8* out) {
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 i = 0; i < count; ++i) copy_short(out + numbers[i] * bytes, values + i * bytes, bytes);
        return 0;
    });
}

// The rows of all parts, whole, to their places in a dense tensor out [units, row_bytes]; units that nobody
// holds stay as they are.
// Returns 0 or NO_MEMORY.
inline i64 join_dense(const u64* any, u64 units, const u16* owners, u64 parts, const u8* const* part_values,
                      u64 row_bytes, u8* out) {
    const Cursors<const u8> cursors(parts, part_values);
    if (cursors.failed()) return NO_MEMORY;
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 w = 0; w < words_of(units); ++w)
            for_each_bit(any[w], [&](u64 bit) {
                copy_short(out + (64 * w + bit) * bytes, cursors.next(*owners++, bytes), bytes);
            });
        return 0;
    });
}

}  // namespace zenc
