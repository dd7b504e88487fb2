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
            for (u64 word = 0; word < 4; ++word) to[word * 32 + lane] = drawn.word[word];
        }
    }
}

}  // namespace zenc
