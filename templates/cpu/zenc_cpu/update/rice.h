// Rice codes: a number's upper bits as so many ones, and its lower ones as they are. Numbers that few others
// are as large as have all their bits instead. With no lower bits the codes of gaps are a bitmap, and with
// some they are as short as Elias and Fano's; of numbers that fall off geometrically none are shorter by half
// a bit. (Rice and Plaunt, IEEE Trans. Communication Technology 1971.)
#pragma once

#include "zenc_cpu/codec/elias_fano.h"

namespace zenc {

constexpr u64 MOST_ONES = 24;  // then all bits follow
constexpr u64 MOST_PEEKED = 57;
constexpr u64 READ_BEYOND = 40;  // bytes behind a stream that its reader may look at: those of a unit's codes

inline u64 bit_width(u64 x) {
    return x == 0 ? 0 : 64 - static_cast<u64>(__builtin_clzll(x));
}

// The length of the code of x, of which `low` bits are lower ones, and `all` all.
inline u64 rice_bits(u64 x, u64 low, u64 all) {
    const u64 ones = x >> low;
    return ones < MOST_ONES ? ones + 1 + low : MOST_ONES + all;
}

// The number of lower bits that makes the codes of x [n] shortest, as far as the widths of the numbers tell.
inline u64 best_low_bits(const u64* x, u64 n, u64 all) {
    u64 of_width[65] = {};
    for (u64 i = 0; i < n; ++i) ++of_width[bit_width(x[i])];
    u64 best = 0, least = ~0ULL;
    for (u64 low = 0; low < all; ++low) {
        u64 bits = of_width[0] * (1 + low);
        for (u64 width = 1; width <= 64; ++width)
            if (of_width[width] != 0)
                bits += of_width[width] * rice_bits((1ULL << (width - 1)) / 2 * 3 | 1, low, all);
        if (bits < least) least = bits, best = low;
    }
    return best;
}

inline void put_bits(BitStream& stream, u64 number, u64 bits) {
    constexpr u64 HALF = 32;
    if (bits > HALF) {
        stream.put(number & low_mask(HALF), HALF);
        number >>= HALF;
        bits -= HALF;
    }
    if (bits != 0) stream.put(number, bits);
}

inline void put_rice(BitStream& stream, u64 x, u64 low, u64 all) {
    const u64 ones = x >> low;
    if (ones >= MOST_ONES) {
        stream.put(low_mask(MOST_ONES), MOST_ONES);
        return put_bits(stream, x, all);
    }
    stream.put(low_mask(ones), ones + 1);
    put_bits(stream, x & low_mask(low), low);
}

// Bits of a stream with READ_BEYOND bytes of anything behind it.
class BitReader {
public:
    explicit BitReader(const u8* stream) : stream_(stream) {}

    u64 position() const { return at_; }

    // The next number of so many bits, at most 64.
    u64 bits(u64 n) {
        if (n <= MOST_PEEKED) return take(n);
        const u64 lower = take(32);
        return lower | take(n - 32) << 32;
    }

    u64 rice(u64 low, u64 all) {
        const u64 ones = lowest_bit(~peek() | 1ULL << MOST_ONES);
        if (ones == MOST_ONES) {
            at_ += MOST_ONES;
            return bits(all);
        }
        at_ += ones + 1;
        return ones << low | bits(low);
    }

private:
    // 57 bits and more of what follows; the others are 0.
    u64 peek() const {
        u64 word;
        std::memcpy(&word, stream_ + at_ / 8, sizeof word);
        return word >> at_ % 8;
    }

    u64 take(u64 n) {
        const u64 number = peek() & low_mask(n);
        at_ += n;
        return number;
    }

    const u8* stream_;
    u64 at_ = 0;
};

}  // namespace zenc
