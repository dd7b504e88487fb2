// Random words of many slots: the counters of 32 lanes at a time.
#pragma once

#include "zenc/compress/philox.h"

namespace zenc {

// words[i] = that of slot `first` + i, for groups of DRAWN_TOGETHER slots; `first` begins one.
inline void random_words(u64 key, u64 first, u64 groups, u32* words) {
    for (u64 group = 0; group < groups; ++group) {
        u32* const to = words + group * DRAWN_TOGETHER;
        const u64 counter = (first / DRAWN_TOGETHER + group) * 32;
        for (u64 lane = 0; lane < 32; ++lane) {
            const Philox drawn = philox(key, counter + lane, 0);
            to[lane] = drawn.word[0];
            to[32 + lane] = drawn.word[1];
            to[64 + lane] = drawn.word[2];
            to[96 + lane] = drawn.word[3];
        }
    }
}

// visit(i, unit) of `drawn` units of n, 1 <= drawn <= n: one of each of as many stretches of as equal a
// length as there is.
template <class Visit>
inline void for_drawn(u64 n, u64 drawn, u64 key, Visit visit) {
    const u64 step = n / drawn, more = n % drawn;
    u32 words[DRAWN_TOGETHER];
    u64 first = 0, rest = 0;  // i * n / drawn, and what remains
    for (u64 i = 0; i < drawn; ++i) {
        if (i % DRAWN_TOGETHER == 0) random_words(key, i, 1, words);
        rest += more;
        const u64 longer = rest >= drawn;
        rest -= longer * drawn;
        visit(i, first + random_below(words[i % DRAWN_TOGETHER], step + longer));
        first += step + longer;
    }
}

}  // namespace zenc
