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

}  // namespace zenc
