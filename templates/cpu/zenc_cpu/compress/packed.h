// Integers of few bits, packed: windows of 32 lanes, and what is left one after another.
#pragma once

#include <cstring>

#include "zenc/compress/layout.h"

namespace zenc {

// A window: 32 rows of 32 lanes. Bits above the lowest `bits` of a value are 0.
inline void pack_window(const u32* values, u32 bits, u8* out) {
    u32 word[PACKED_LANES] = {};
    u32 filled = 0;
    for (u64 row = 0; row < PACKED_ROWS; ++row, values += PACKED_LANES) {
        for (u64 i = 0; i < PACKED_LANES; ++i) word[i] |= values[i] << filled;
        filled += bits;
        if (filled < 32) continue;
        std::memcpy(out, word, sizeof word);
        out += sizeof word;
        filled -= 32;
        const u32 taken = bits - filled;
        if (taken < 32)
            for (u64 i = 0; i < PACKED_LANES; ++i) word[i] = values[i] >> taken;
        else
            std::memset(word, 0, sizeof word);
    }
}

inline void unpack_window(const u8* in, u32 bits, u32* values) {
    const u32 mask = bits == 32 ? ~0U : (1U << bits) - 1;
    u32 word[PACKED_LANES];
    u32 used = 32;
    for (u64 row = 0; row < PACKED_ROWS; ++row, values += PACKED_LANES) {
        if (used == 32) {
            std::memcpy(word, in, sizeof word);
            in += sizeof word;
            used = 0;
        }
        for (u64 i = 0; i < PACKED_LANES; ++i) values[i] = word[i] >> used;
        used += bits;
        if (used > 32) {
            std::memcpy(word, in, sizeof word);
            in += sizeof word;
            used -= 32;
            for (u64 i = 0; i < PACKED_LANES; ++i) values[i] |= word[i] << (bits - used);
        }
        for (u64 i = 0; i < PACKED_LANES; ++i) values[i] &= mask;
    }
}

inline void pack_rest(const u32* values, u64 n, u32 bits, u8* out) {
    u64 held = 0;
    u32 filled = 0;
    for (u64 i = 0; i < n; ++i) {
        held |= static_cast<u64>(values[i]) << filled;
        for (filled += bits; filled >= 8; filled -= 8, held >>= 8) *out++ = static_cast<u8>(held);
    }
    if (filled) *out = static_cast<u8>(held);
}

inline void unpack_rest(const u8* in, u64 n, u32 bits, u32* values) {
    const u64 mask = (1ULL << bits) - 1;
    u64 held = 0;
    u32 filled = 0;
    for (u64 i = 0; i < n; ++i) {
        for (; filled < bits; filled += 8) held |= static_cast<u64>(*in++) << filled;
        values[i] = static_cast<u32>(held & mask);
        held >>= bits;
        filled -= bits;
    }
}

// Packing of values in `bits` bits each. Values come in stretches of MOST, of which the last may be short.
struct Bits {
    u32 bits;

    static constexpr u64 MOST = PACKED_WINDOW;

    u64 bytes(u64 count) const { return packed_bytes(bits, count); }

    void pack(const u32* values, u64 n, u8* out) const {
        n == MOST ? pack_window(values, bits, out) : pack_rest(values, n, bits, out);
    }

    void unpack(const u8* in, u64 n, u32* values) const {
        n == MOST ? unpack_window(in, bits, values) : unpack_rest(in, n, bits, values);
    }
};

// Packing of trits, five a byte.
struct Trits {
    static constexpr u64 MOST = 8 * TRIT_WINDOW;

    u64 bytes(u64 count) const { return (count + TRITS - 1) / TRITS; }

    void pack(const u32* values, u64 n, u8* out) const {
        for (; n >= TRIT_WINDOW; n -= TRIT_WINDOW, values += TRIT_WINDOW, out += PACKED_LANES) {
            u32 bytes[PACKED_LANES] = {};
            for (u64 row = 0; row < TRITS; ++row)
                for (u64 i = 0; i < PACKED_LANES; ++i)
                    bytes[i] = add_trit(bytes[i], values[row * PACKED_LANES + i]);
            for (u64 i = 0; i < PACKED_LANES; ++i) out[i] = static_cast<u8>(bytes[i]);
        }
        for (u64 first = 0; first < n; first += TRITS) {
            u32 byte = 0;
            for (u64 i = first; i < first + TRITS; ++i) byte = add_trit(byte, i < n ? values[i] : 0);
            *out++ = static_cast<u8>(byte);
        }
    }

    void unpack(const u8* in, u64 n, u32* values) const {
        for (; n >= TRIT_WINDOW; n -= TRIT_WINDOW, values += TRIT_WINDOW, in += PACKED_LANES) {
            u32 fractions[PACKED_LANES];
            for (u64 i = 0; i < PACKED_LANES; ++i) fractions[i] = trits_of(in[i]);
            for (u64 row = 0; row < TRITS; ++row)
                for (u64 i = 0; i < PACKED_LANES; ++i)
                    values[row * PACKED_LANES + i] = next_trit(fractions[i]);
        }
        for (u64 first = 0; first < n; first += TRITS) {
            u32 fraction = trits_of(*in++);
            for (u64 i = first; i < first + TRITS && i < n; ++i) values[i] = next_trit(fraction);
        }
    }
};

}  // namespace zenc
