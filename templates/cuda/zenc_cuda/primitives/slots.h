// The occupied slots of a segment, or the absent ones, by their numbers.
#pragma once

#include "zenc/segment.h"
#include "zenc_cuda/primitives/search.h"

namespace zenc {

// How many slots are occupied; never more than there is room for, whatever a peer says.
ZENC_DEVICE u64 occupied(const Segment& segment) {
    if (segment.actual == nullptr || *segment.actual > segment.count) return segment.count;
    return *segment.actual;
}

// The occupied slots of a segment; or, if `absent`, all the others.
struct Slots {
    const u64* bitmap;
    const u64* ranks;
    u64 words;
    bool absent;

    ZENC_DEVICE explicit Slots(const Segment& segment, bool absent_ = false)
        : bitmap(segment.bitmap), ranks(segment.ranks), words(words_of(segment.slots)), absent(absent_) {}

    // Those in the words below `word`, for word <= words.
    ZENC_DEVICE u64 below(u64 word) const {
        const u64 occupied = set_below(bitmap, ranks, word) - below_first(ranks[0]);
        return absent ? 64 * word - occupied : occupied;
    }

    // Bits beyond the last slot look like absent ones, behind all others.
    ZENC_DEVICE u64 word(u64 at) const { return absent ? ~bitmap[at] : bitmap[at]; }

    // The word that number i is in, for which `from` is a word that is not behind it.
    ZENC_DEVICE u64 word_of(u64 i, u64 from) const {
        return gallop(from, words, [&](u64 at) { return below(at) <= i; });
    }

    // The same for a warp that asks together, and knows nothing yet.
    ZENC_DEVICE u64 word_of_warp(u64 i) const {
        return warp_search(words, [&](u64 at) { return below(at) <= i; }) - 1;
    }
};

// One slot after another.
class SlotCursor {
public:
    // Stands at number i. `from` is a word that is not behind it.
    ZENC_DEVICE SlotCursor(const Slots& of, u64 from, u64 i) : of_(of), number_(i) { seek(from); }

    ZENC_DEVICE u64 number() const { return number_; }
    ZENC_DEVICE u64 slot() const { return 64 * word_ + lowest_bit(left_); }

    // Goes on to the next one. There is no slot behind the last.
    ZENC_DEVICE void next() {
        ++number_;
        left_ &= left_ - 1;
        if (left_ == 0) seek(word_);
    }

private:
    ZENC_DEVICE void seek(u64 from) {
        word_ = of_.word_of(number_, from);
        const u64 bits = of_.word(word_);
        left_ = bits & ~low_mask(select_bit(bits, static_cast<u32>(number_ - of_.below(word_))));
    }

    const Slots& of_;
    u64 number_;
    u64 word_ = 0;
    u64 left_ = 0;
};

}  // namespace zenc
