// Segments of which only the room is known to the host: whether they have it, and how many slots they are.
// `raised` is 0 until anything does not fit: then the call is made again, and what it does until then must
// only stay inside of its memory.
#pragma once

#include "zenc/control.h"
#include "zenc_cuda/primitives/slots.h"

namespace zenc {

// Raises if a word is not what it should be.
ZENC_DEVICE void raise(const Expected* words, i64 n, u64* raised) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        if (*words[i].word != words[i].right) atomicOr(raised, 1ULL);
}

// Raises if a segment, which is marked and ranked, has more slots than room.
ZENC_DEVICE void weigh(const Segment* segments, i64 n, u64* raised) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row())
        if (const Slots slots(segments[i]); slots.below(slots.words) > segments[i].count)
            atomicOr(raised, 1ULL);
}

// Writes how many slots segments have. Once `raised` they have none, as if they had never been marked.
//
// Writes 8 bytes a segment; bitmap and ranks if raised.
ZENC_DEVICE void admit(const Segment* segments, i64 n, bool raised) {
    for_each_segment(n, [&](u64 i) {
        const Slots slots(segments[i]);
        if (thread_of_row() == 0) *segments[i].actual = raised ? 0 : slots.below(slots.words);
        if (!raised) return;
        for (u64 w = thread_of_row(); w < slots.words; w += threads_of_row()) segments[i].bitmap[w] = 0;
        // The last rank of a part may be the first of the next one.
        for (u64 k = thread_of_row(); k < ranks_of(segments[i].slots); k += threads_of_row())
            atomicExch(segments[i].ranks + k, 0ULL);
    });
}

}  // namespace zenc
