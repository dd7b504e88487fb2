// Random words by a counter: Philox4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011).
#pragma once

#include "zenc/config.h"

namespace zenc {

struct Philox {
    u32 word[4];
};

ZENC_HD inline Philox philox(u64 key, u64 low, u64 high) {
    u32 k0 = static_cast<u32>(key), k1 = static_cast<u32>(key >> 32);
    u32 a = static_cast<u32>(low), b = static_cast<u32>(low >> 32);
    u32 c = static_cast<u32>(high), d = static_cast<u32>(high >> 32);
    const auto round = [&] {
        const u64 first = static_cast<u64>(a) * 0xd2511f53U;
        const u64 second = static_cast<u64>(c) * 0xcd9e8d57U;
        a = static_cast<u32>(second >> 32) ^ b ^ k0;
        b = static_cast<u32>(second);
        c = static_cast<u32>(first >> 32) ^ d ^ k1;
        d = static_cast<u32>(first);
        k0 += 0x9e3779b9U;
        k1 += 0xbb67ae85U;
    };
    round(), round(), round(), round(), round();  // a loop of them would not become vectors
    round(), round(), round(), round(), round();
    return {{a, b, c, d}};
}

// Slots that share 32 counters, one for each rest mod 32: lanes of a vector have one each.
constexpr u64 DRAWN_TOGETHER = 128;

// The random word of a slot.
ZENC_HD inline u32 random_word(u64 key, u64 slot) {
    return philox(key, slot / DRAWN_TOGETHER * 32 + slot % 32, 0).word[slot / 32 % 4];
}

// A number below n < 2^32; each is as likely as the others to one in 2^32 / n.
ZENC_HD inline u64 random_below(u32 word, u64 n) {
    return static_cast<u64>(word) * n >> 32;
}

// The first of n units in stretch i of k stretches of as equal a length as there is, k < 2^32: i n / k.
ZENC_HD inline u64 stretch_begin(u64 i, u64 n, u64 k) {
    return i * (n / k) + i * (n % k) / k;
}

// Draws a unit from stretch i, for 1 <= k <= n < 2^32 k.
ZENC_HD inline u64 drawn_unit(u64 key, u64 i, u64 n, u64 k) {
    const u64 first = stretch_begin(i, n, k);
    return first + random_below(random_word(key, i), stretch_begin(i + 1, n, k) - first);
}

}  // namespace zenc
