// Segments that are filled up with zeros to whole blocks, which the format block(k) carries (see block_of in
// formats.h), and segments without the units that hold nothing but zeros, of either sign. Any other bits are
// kept: NaN, infinities and the smallest denormals are something.
#pragma once

#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/memory.h"
#include "zenc_cpu/primitives/nonzero.h"

namespace zenc {

// The blocks of 2^shift slots that a part is cut in; the last one may be short.
struct Blocks {
    u64 slots;
    u64 shift;

    u64 number() const { return (slots >> shift) + ((slots & low_mask(shift)) != 0); }

    // The slots of the blocks whose bits are set in words_of(number()) words.
    u64 slots_in(const u64* blocks) const {
        const u64 n = number();
        const bool short_one = n != 0 && (blocks[(n - 1) / 64] >> ((n - 1) % 64) & 1) != 0;
        return (population(blocks, words_of(n)) << shift) - (short_one ? (n << shift) - slots : 0);
    }
};

// out [words_of(number)] = the blocks that have any slot of the bitmap.
inline void blocks_of_slots(const Blocks& cut, const u64* bitmap, u64* out) {
    clear_bytes(out, words_of(cut.number()) * 8);
    for (u64 w = 0; w < words_of(cut.slots); ++w) {
        // A word's slots are all in one block, if that has 64 or more: one bit stands for them.
        const u64 word = cut.shift < 6 ? bitmap[w] : u64{bitmap[w] != 0};
        for_each_bit(word, [&](u64 bit) {
            const u64 block = (64 * w + bit) >> cut.shift;
            out[block / 64] |= 1ULL << (block % 64);
        });
    }
}

// out [words_of(slots)] = all slots of the blocks whose bits are set; there are no others set.
inline void slots_of_blocks(const Blocks& cut, const u64* blocks, u64* out) {
    const u64 words = words_of(cut.slots);
    clear_bytes(out, words * 8);
    for (u64 w = 0; w < words_of(cut.number()); ++w)
        for_each_bit(blocks[w], [&](u64 bit) {
            const u64 first = (64 * w + bit) << cut.shift;
            if (cut.shift < 6) {
                out[first / 64] |= low_mask(1ULL << cut.shift) << (first % 64);
                return;
            }
            const u64 end = (first >> 6) + (1ULL << (cut.shift - 6));
            for (u64 i = first / 64; i < end && i < words; ++i) out[i] = ~0ULL;
        });
    if (cut.slots % 64 != 0) out[words - 1] &= low_mask(cut.slots % 64);
}

// out [words_of(slots)] = the bitmap with every block filled up that has any slot. Returns its bits or
// NO_MEMORY.
inline i64 fill_blocks(const Blocks& cut, const u64* bitmap, u64* out) {
    const Scratch<u64> blocks(words_of(cut.number()));
    if (blocks.failed()) return NO_MEMORY;
    blocks_of_slots(cut, bitmap, blocks.get());
    slots_of_blocks(cut, blocks.get(), out);
    return static_cast<i64>(cut.slots_in(blocks.get()));
}

// out [bits of filled, width]: the values of the slots of the bitmap, +0 for the others of `filled`, which
// has them all.
template <class T>
inline void spread_rows(const u64* bitmap, const u64* filled, u64 slots, u64 width, const T* values, T* out) {
    for (u64 w = 0; w < words_of(slots); ++w) {
        const u64 n = population(filled[w]);
        if (bitmap[w] == filled[w]) {
            copy_bytes(out, values, n * width * sizeof(T));
            values += n * width;
        } else {
            clear_bytes(out, n * width * sizeof(T));
            for_each_bit(bitmap[w], [&](u64 bit) {
                copy_row(values, width, out + population(filled[w] & low_mask(bit)) * width);
                values += width;
            });
        }
        out += n * width;
    }
}

// The index of block(k): its blocks, of a segment that has all slots of them.
inline i64 encode_blocks(const Blocks& cut, const u64* bitmap, u64 count, u64* out) {
    if (population(bitmap, words_of(cut.slots)) != count) return WRONG_COUNT;
    blocks_of_slots(cut, bitmap, out);
    return cut.slots_in(out) == count ? 0 : WRONG_COUNT;
}

inline i64 decode_blocks(const Blocks& cut, const u64* in, u64 count, u64* bitmap) {
    const u64 n = cut.number();
    if (n % 64 != 0 && (in[n / 64] & ~low_mask(n % 64)) != 0) return STRAY_BITS;
    if (cut.slots_in(in) != count) return WRONG_COUNT;
    slots_of_blocks(cut, in, bitmap);
    return 0;
}

// `chosen` counts the set bits of `word` from the lowest one: the result has those of them that it names.
inline u64 deposit(u64 chosen, u64 word) {
    if (word == ~u64{0}) return chosen;
    u64 result = 0;
    for (; word != 0 && chosen != 0; word &= word - 1, chosen >>= 1) {
        if ((chosen & 1) != 0) result |= word & -word;
    }
    return result;
}

// values [count, width] of the slots in `bitmap` -> the bits of those that are not all zero. Returns how
// many.
template <class Bits, class Width>
ZENC_SHARED_CODE inline u64 mark_nonzero(const u64* bitmap, u64 words, Width width, const Bits* values,
                                         u64* kept) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        const u64 n = population(bitmap[w]);
        kept[w] = n == 0 ? 0 : deposit(occupied_word(values, n, width), bitmap[w]);
        total += population(kept[w]);
        values += n * width;
    }
    return total;
}

// values [bits of filled, width]: zeros of slots in the bitmap become +0, and those of others -0. A sum of
// both is +0, and only a sum of the latter -0: it says that nobody has the slot.
template <class Bits>
inline void mark_absent(const u64* bitmap, const u64* filled, u64 slots, u64 width, Bits* values) {
    for (u64 w = 0; w < words_of(slots); ++w)
        for_each_bit(filled[w], [&](u64 bit) {
            const Bits zero = (bitmap[w] >> bit & 1) != 0 ? Bits{0} : SIGN<Bits>;
            for (u64 i = 0; i < width; ++i) values[i] = magnitude_bits(values[i]) == 0 ? zero : values[i];
            values += width;
        });
}

// mark_nonzero for such sums: rows stay that are not all -0.
template <class Bits>
inline u64 mark_present(const u64* bitmap, u64 words, u64 width, const Bits* values, u64* kept) {
    u64 total = 0;
    for (u64 w = 0; w < words; ++w) {
        kept[w] = 0;
        for_each_bit(bitmap[w], [&](u64 bit) {
            Bits any = 0;
            for (u64 i = 0; i < width; ++i) any |= values[i] ^ SIGN<Bits>;
            kept[w] |= static_cast<u64>(any != 0) << bit;
            values += width;
        });
        total += population(kept[w]);
    }
    return total;
}

// values [count, width] of the slots in `bitmap` -> out, the rows of those in `kept`, a part of it.
template <class Bits, class Width>
ZENC_SHARED_CODE inline void copy_kept(const u64* bitmap, const u64* kept, u64 words, Width width,
                                       const Bits* values, Bits* out) {
    for (u64 w = 0; w < words; ++w) {
        const u64 n = population(bitmap[w]);
        if (kept[w] == bitmap[w]) {
            copy_bytes(out, values, n * width * sizeof(Bits));
            out += n * width;
        } else {
            for (u64 word = kept[w]; word != 0; word &= word - 1, out += width) {
                const u64 place = population(bitmap[w] & ((word & -word) - 1));
                copy_bytes(out, values + place * width, width * sizeof(Bits));
            }
        }
        values += n * width;
    }
}

template <class Bits>
inline u64 mark_nonzero_rows(const u64* bitmap, u64 words, u64 width, const Bits* values, u64* kept) {
    return with_width(width, [&](auto w) { return mark_nonzero(bitmap, words, w, values, kept); });
}

template <class Bits>
inline void copy_kept_rows(const u64* bitmap, const u64* kept, u64 words, u64 width, const Bits* values,
                           Bits* out) {
    with_width(width, [&](auto w) { copy_kept(bitmap, kept, words, w, values, out); });
}

}  // namespace zenc
