// Units in the bitmaps of all ranks, and who holds them.
#pragma once

#include "zenc/bits.h"
#include "zenc_cpu/primitives/lanes.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

// Words that are looked at together: a block of each bitmap stays in the first cache.
constexpr u64 HOLDER_BLOCK = 256;

// A block of the bitmaps of all ranks, word by word.
class HolderBlock {
public:
    HolderBlock(u64 ranks, const u64* const* bitmaps) : ranks_(ranks), bitmaps_(bitmaps) {
        while (digit_count_ < MOST_DIGITS && 1ULL << digit_count_ < ranks) ++digit_count_;
    }

    // The union, and what several hold, of n words from `first` on.
    void read(u64 first, u64 n) {
        clear_bytes(any_, n * 8);
        clear_bytes(several_, n * 8);
        for (u64 k = 0; k < ranks_; ++k) {
            const u64* const words = bitmaps_[k] + first;
            for (u64 w = 0; w < n; ++w) {
                several_[w] |= any_[w] & words[w];
                any_[w] |= words[w];
            }
        }
        first_ = first, size_ = n;
    }

    // Then, who holds what nobody else holds: bit i of the rank is in digits_[i].
    void read_digits() {
        for (u64 i = 0; i < digit_count_; ++i) {
            clear_bytes(digits_[i], size_ * 8);
            for (u64 k = 0; k < ranks_; ++k)
                if (k >> i & 1)
                    for (u64 w = 0; w < size_; ++w) digits_[i][w] |= bitmaps_[k][first_ + w];
        }
    }

    u64 size() const { return size_; }
    u64 first() const { return first_; }
    u64 any(u64 w) const { return any_[w]; }
    u64 several(u64 w) const { return several_[w]; }

    // The holder of a unit that one rank holds.
    u64 only_holder(u64 w, u64 bit) const {
        u64 rank = 0;
        for (u64 i = 0; i < digit_count_; ++i) rank |= (digits_[i][w] >> bit & 1) << i;
        return rank;
    }

private:
    static constexpr u64 MOST_DIGITS = 16;  // ranks are below 2^16

    u64 ranks_;
    const u64* const* bitmaps_;
    u64 first_ = 0, size_ = 0, digit_count_ = 0;
    u64 any_[HOLDER_BLOCK], several_[HOLDER_BLOCK], digits_[MOST_DIGITS][HOLDER_BLOCK];
};

// visit(block): all blocks of the bitmaps, in order.
template <class Visit>
inline void for_each_block(u64 ranks, const u64* const* bitmaps, u64 words, Visit visit) {
    HolderBlock block(ranks, bitmaps);
    for (u64 first = 0; first < words; first += HOLDER_BLOCK) {
        block.read(first, words - first < HOLDER_BLOCK ? words - first : HOLDER_BLOCK);
        visit(block);
    }
}

// The holders of the units of one word, found by a pass over all ranks without a branch on a bit: most units
// have few holders, and which they are can't be predicted.
class WordHolders {
public:
    explicit WordHolders(u64 size) : size_(size), words_(ceil_divide(size, LANES) * LANES), ranks_(size) {}

    bool failed() const { return words_.failed() || ranks_.failed(); }

    void collect(const u64* const* bitmaps, u64 word) {
        for (u64 k = 0; k < size_; ++k) words_[k] = bitmaps[k][word];
    }

    // Lists the ranks that hold a bit of the word, ascending, as `ranks`. Returns how many.
    u64 find(u64 bit) {
        u64 count = 0;
        for (u64 first = 0; first < size_; first += 64) {
            u64 mine = 0;
            for (u64 k = 0; k < 64 && first + k < size_; k += LANES)
                mine |= with_bit(words_.get() + first + k, 1ULL << bit) << k;
            for_each_bit(mine, [&](u64 k) { ranks_[count++] = static_cast<u16>(first + k); });
        }
        return count;
    }

    const u16* ranks() const { return ranks_.get(); }

private:
    static constexpr u64 LANES = 8;

    // Bit k: words[k] & mask != 0.
    static u64 with_bit(const u64* words, u64 mask) {
#if ZENC_LANES
        return test_lanes(words, mask);
#else
        u64 found = 0;
        for (u64 k = 0; k < LANES; ++k) found |= static_cast<u64>((words[k] & mask) != 0) << k;
        return found;
#endif
    }

    u64 size_;
    Scratch<u64> words_;
    Scratch<u16> ranks_;
};

}  // namespace zenc
