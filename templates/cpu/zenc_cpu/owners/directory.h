// A directory of owners under `balanced by holders`: each rank hears of the units in its part from all ranks,
// chooses their owners, and tells all (docs/adr/0067-directory.md).
//
// Every block of `parts` units in a row has one unit in each part. Which one is drawn for each block, so that
// neither popular units in a row nor those at equal distances meet in one part. The slot is the block.
#pragma once

#include "zenc/mix.h"
#include "zenc_cpu/owners/owners.h"

namespace zenc {

// The unit of part p in a block is its number (p - shift) mod parts.
class Deal {
public:
    explicit Deal(u64 parts) : parts_(parts), blocks_(parts) {}

    u64 block(u64 unit) const { return blocks_.quotient(unit); }
    u64 shift(u64 block) const { return below(mix(block), parts_); }
    u64 part(u64 unit) const { return part(unit, block(unit)); }
    u64 part(u64 unit, u64 block) const { return wrapped(unit - block * parts_ + shift(block)); }
    u64 unit(u64 block, u64 shift, u64 part) const { return block * parts_ + wrapped(part + parts_ - shift); }

private:
    // number mod parts, for numbers below twice that.
    u64 wrapped(u64 number) const { return number < parts_ ? number : number - parts_; }

    u64 parts_;
    Divider blocks_;
};

// The units in `own` [words] by part: outs [parts], cleared bitmaps. counts [parts]: how many are in each.
// Returns 0.
inline i64 deal_units(const u64* own, u64 words, u64 parts, u64* const* outs, u64* counts) {
    const Deal deal(parts);
    clear_bytes(counts, parts * 8);
    for (u64 w = 0; w < words; ++w)
        for_each_bit(own[w], [&](u64 bit) {
            const u64 unit = 64 * w + bit, block = deal.block(unit), part = deal.part(unit, block);
            outs[part][block / 64] |= 1ULL << (block % 64);
            ++counts[part];
        });
    return 0;
}

// Clears `any` [words_of(units)] and sets the units of all parts in it, from bitmaps [parts] over their
// slots. Returns false for a slot that is no unit.
inline bool gather_units(u64 units, u64 parts, const u64* const* bitmaps, u64* any) {
    const Deal deal(parts);
    clear_bytes(any, words_of(units) * 8);
    bool sound = true;
    for (u64 w = 0; w < words_of(ceil_divide(units, parts)); ++w) {
        u64 shifts[64];
        for (u64 bit = 0; bit < 64; ++bit) shifts[bit] = deal.shift(64 * w + bit);
        for (u64 part = 0; part < parts; ++part)
            for_each_bit(bitmaps[part][w], [&](u64 bit) {
                const u64 unit = deal.unit(64 * w + bit, shifts[bit], part);
                if (unit < units)
                    any[unit / 64] |= 1ULL << (unit % 64);
                else
                    sound = false;
            });
    }
    return sound;
}

// Joins all parts of a directory: bitmaps [parts] over their slots, and for each part the owners of its
// units, ascending; they may lie anywhere. any [words_of(units)]; owners [held units]; slots [parts]: how
// many units each rank owns; digest: 64 bits of it all, as `choose_owners` makes them. Returns the number of
// units, or OUT_OF_RANGE for a slot that is no unit, or an owner that is no rank, or NO_MEMORY.
inline i64 join_directory(u64 units, u64 parts, const u64* const* bitmaps, const u8* const* part_owners,
                          u64* any, u16* owners, u64* slots, u64* digest) {
    const Deal deal(parts);
    const Cursors<const u8> cursors(parts, part_owners);
    if (cursors.failed()) return NO_MEMORY;
    if (!gather_units(units, parts, bitmaps, any)) return OUT_OF_RANGE;
    clear_bytes(slots, parts * 8);
    u64 chosen = WordDigest::of_ranks(parts);
    const u16* const start = owners;
    bool sound = true;
    for (u64 w = 0; w < words_of(units); ++w) {
        if (any[w] == 0) continue;
        WordDigest of_word(w, any[w]);
        for_each_bit(any[w], [&](u64 bit) {
            u16 owner;
            copy_bytes(&owner, cursors.next(deal.part(64 * w + bit), sizeof owner), sizeof owner);
            sound &= owner < parts;
            if (owner < parts) ++slots[owner];
            of_word.add(owner);
            *owners++ = owner;
        });
        chosen += of_word.value();
    }
    *digest = chosen;
    return sound ? owners - start : OUT_OF_RANGE;
}

// The slots that one rank, which holds the units in `own`, occupies in each part. outs [parts]: cleared
// bitmaps; counts [parts]: how many. Returns 0 or NO_MEMORY.
inline i64 mark_own(const u64* any, const u64* own, u64 words, const u16* owners, u64 parts, u64* const* outs,
                    u64* counts) {
    const Scratch<u64> next(parts);
    if (next.failed()) return NO_MEMORY;
    clear_bytes(counts, parts * 8);
    for (u64 w = 0; w < words; ++w)
        for_each_bit(any[w], [&](u64 bit) {
            const u16 part = *owners++;
            const u64 slot = next[part]++;
            if (own[w] >> bit & 1) {
                outs[part][slot / 64] |= 1ULL << (slot % 64);
                ++counts[part];
            }
        });
    return 0;
}

}  // namespace zenc
