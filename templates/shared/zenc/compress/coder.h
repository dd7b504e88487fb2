// Adaptive stepwise coding: integers by a range coder whose model adapts to them, and does not travel.
//
// A number becomes 2|q| or 2|q| - 1, by its sign. Below 8 that is a symbol of 32; each octave above is one
// more, the first four bits within an octave are a symbol of 16 that the octave has a model for, and the
// others are written as they are. A model begins with all that a sum of so many bits can be as likely as each
// other, so that it is one for each step of a reduction. The range has 64 bits, and loses 32 at a time.
#pragma once

#include "zenc/config.h"

namespace zenc {

constexpr u32 CODED_BITS = 15;  // frequencies add up to 2^15
constexpr u32 CODED_TOTAL = 1U << CODED_BITS;
constexpr u32 CODED_LEAST = 2;  // of any symbol
constexpr u32 DIRECT = 8;
constexpr u32 DIRECT_BITS = 3;
constexpr u32 OCTAVES = 24;
constexpr u32 MOST_CODED_BITS = 26;  // of a number: 27 would reach the last octave's end

// Frequencies of N symbols: that of symbol i begins at first[i].
template <u32 N>
struct Frequencies {
    u16 first[N];
    u16 seen;

    // Begins with the first `likely` symbols equally probable.
    ZENC_HD void begin(u32 likely) {
        const u32 share = (CODED_TOTAL - N * CODED_LEAST) / likely;
        for (u32 i = 0; i < N; ++i)
            first[i] =
                static_cast<u16>(i * CODED_LEAST + (i < likely ? i * share : CODED_TOTAL - N * CODED_LEAST));
        seen = 0;
    }

    ZENC_HD u32 end(u32 symbol) const { return symbol + 1 == N ? CODED_TOTAL : first[symbol + 1]; }

    ZENC_HD u32 symbol_at(u32 value) const {
        const auto at = static_cast<u16>(value);
        u16 found = 0;
        for (u32 i = 0; i < N; ++i) found = static_cast<u16>(found + static_cast<u16>(first[i] <= at));
        return found - 1U;
    }

    // Nearer to this symbol alone: fast at first, then by a 64th.
    ZENC_HD void see(u32 symbol) {
        const int rate = seen < 8 ? 3 : seen < 32 ? 4 : seen < 128 ? 5 : seen < 512 ? 6 : 7;
        seen = static_cast<u16>(seen + (seen < 512));
        for (u32 i = 0; i < N; ++i) {
            const u32 below = i * CODED_LEAST;
            const u32 above = CODED_TOTAL - (N - i) * CODED_LEAST;
            const auto to = static_cast<short>((i <= symbol ? below : above) - first[i]);
            first[i] = static_cast<u16>(first[i] + (to >> rate));
        }
    }
};

struct CodedModel {
    Frequencies<DIRECT + OCTAVES> symbols;
    Frequencies<16> within[OCTAVES];

    ZENC_HD explicit CodedModel(u32 bits) {
        symbols.begin(bits <= DIRECT_BITS ? DIRECT : DIRECT + bits - DIRECT_BITS);
        for (u32 octave = 0; octave < OCTAVES; ++octave) within[octave].begin(octave == 0 ? 8 : 16);
    }
};

ZENC_HD inline u32 octave_of(u32 number) {
#if defined(__CUDA_ARCH__)
    return 31 - static_cast<u32>(__clz(static_cast<int>(number)));
#else
    return 31 - static_cast<u32>(__builtin_clz(number));
#endif
}

constexpr u64 CHUNK = 1 << 14;    // numbers that a model is for
constexpr u64 CODED_HEADER = 16;  // bytes of all, the exponent of the step, 0
constexpr u32 STORED = 1U << 31;  // beside the length of a chunk that is packed instead

// Writes to at most `limit` bytes.
class RangeEncoder {
public:
    ZENC_HD RangeEncoder(u8* out, u64 limit) : out_(out), begin_(out), end_(out + limit) {}

    // Room for a number, and for the end.
    ZENC_HD bool has_room() const { return static_cast<u64>(end_ - out_) >= 16; }

    ZENC_HD void put(u32 first, u32 length, u32 bits) {
        const u64 part = range_ >> bits;
        const u64 low = low_ + part * first;
        if (low < low_) carry();
        low_ = low;
        range_ = part * length;
        if (range_ >> 32) return;
        write();
        range_ <<= 32;
    }

    template <u32 N>
    ZENC_HD void put(Frequencies<N>& model, u32 symbol) {
        const u32 first = model.first[symbol];
        put(first, model.end(symbol) - first, CODED_BITS);
        model.see(symbol);
    }

    // Returns the bytes of all. Zeros follow them: any number in the range will do.
    ZENC_HD u64 finish() {
        const u64 low = low_ + 0xffffffffU;
        if (low < low_) carry();
        low_ = low;
        write();
        return static_cast<u64>(out_ - begin_);
    }

private:
    ZENC_HD void carry() {
        for (u8* at = out_; ++*--at == 0;) {
        }
    }

    ZENC_HD void write() {
        for (int shift = 56; shift >= 32; shift -= 8) *out_++ = static_cast<u8>(low_ >> shift);
        low_ <<= 32;
    }

    u8* out_;
    u8* const begin_;
    u8* const end_;
    u64 low_ = 0;
    u64 range_ = ~0ULL;
};

class RangeDecoder {
public:
    ZENC_HD RangeDecoder(const u8* in, u64 bytes) : in_(in), bytes_(bytes) {
        read();
        read();
    }

    // A number of `bits` bits as it is. Returns false if nobody has written it.
    ZENC_HD bool get(u32 bits, u32& number) {
        const u64 part = range_ >> bits, found = ahead_ / part;
        if (found >> bits) return false;
        number = static_cast<u32>(found);
        take(part, number, 1);
        return true;
    }

    template <u32 N>
    ZENC_HD bool get(Frequencies<N>& model, u32& symbol) {
        const u64 part = range_ >> CODED_BITS, found = ahead_ / part;
        if (found >= CODED_TOTAL) return false;
        symbol = model.symbol_at(static_cast<u32>(found));
        const u32 first = model.first[symbol];
        take(part, first, model.end(symbol) - first);
        model.see(symbol);
        return true;
    }

    // Whether all bytes, and one more word of zeros, have been read.
    ZENC_HD bool is_at_end() const { return at_ == bytes_ + 4; }

private:
    ZENC_HD void take(u64 part, u32 first, u32 length) {
        ahead_ -= part * first;
        range_ = part * length;
        if (range_ >> 32) return;
        read();
        range_ <<= 32;
    }

    ZENC_HD void read() {
        u32 word = 0;
        if (at_ + 4 <= bytes_) {
            const u8* const next = in_ + at_;
            word = static_cast<u32>(next[0]) << 24 | static_cast<u32>(next[1]) << 16 |
                   static_cast<u32>(next[2]) << 8 | next[3];
        } else {
            for (u64 i = 0; i < 4; ++i) word = word << 8 | (at_ + i < bytes_ ? in_[at_ + i] : 0U);
        }
        at_ += 4;
        ahead_ = ahead_ << 32 | word;
    }

    const u8* const in_;
    const u64 bytes_;
    u64 at_ = 0;
    u64 ahead_ = 0;
    u64 range_ = ~0ULL;
};

ZENC_HD inline u32 folded(int number) {
    const u32 twice = static_cast<u32>(number) << 1;
    return number > 0 ? twice - 1 : 0U - twice;
}

ZENC_HD inline int unfolded(u32 number) {
    const int half = static_cast<int>((number + 1) >> 1);
    return number & 1 ? half : -half;
}

// Codes n numbers of `bits` bits in at most `limit` bytes. Returns the number of bytes; 0 if that is not
// enough, or if a number has more bits.
template <class Numbers>
ZENC_HD inline u64 encode_chunk(const Numbers& numbers, u64 n, u32 bits, u8* out, u64 limit) {
    CodedModel model(bits);
    RangeEncoder coder(out, limit);
    for (u64 i = 0; i < n; ++i) {
        if (!coder.has_room()) return 0;
        const u32 number = folded(numbers[i]);
        if (number >> bits != 0) return 0;
        if (number < DIRECT) {
            coder.put(model.symbols, number);
            continue;
        }
        const u32 octave = octave_of(number);
        const u32 rest = number - (1U << octave);
        const u32 plain = octave <= 4 ? 0 : octave - 4;
        coder.put(model.symbols, DIRECT + octave - DIRECT_BITS);
        coder.put(model.within[octave - DIRECT_BITS], rest >> plain);
        if (plain) coder.put(rest & ((1U << plain) - 1), 1, plain);
    }
    return coder.has_room() ? coder.finish() : 0;
}

// Decodes the numbers of a chunk, one after another.
class ChunkDecoder {
public:
    ZENC_HD ChunkDecoder(const u8* in, u64 bytes, u32 bits) : bits_(bits), model_(bits), coder_(in, bytes) {}

    // Returns false for bytes that nobody has written.
    ZENC_HD bool next(int& to) {
        u32 number, rest;
        if (!coder_.get(model_.symbols, number)) return false;
        if (number >= DIRECT) {
            const u32 octave = number - DIRECT + DIRECT_BITS;
            const u32 plain = octave <= 4 ? 0 : octave - 4;
            if (octave >= bits_ || !coder_.get(model_.within[octave - DIRECT_BITS], rest)) return false;
            number = (1U << octave) + (rest << plain);
            if (plain) {
                if (!coder_.get(plain, rest)) return false;
                number += rest;
            }
        }
        to = unfolded(number);
        return number >> bits_ == 0;
    }

    ZENC_HD bool is_at_end() const { return coder_.is_at_end(); }

private:
    const u32 bits_;
    CodedModel model_;
    RangeDecoder coder_;
};

// Returns false for bytes that nobody has written.
ZENC_HD inline bool decode_chunk(const u8* in, u64 bytes, u64 n, u32 bits, int* numbers) {
    ChunkDecoder chunk(in, bytes, bits);
    for (u64 i = 0; i < n; ++i)
        if (!chunk.next(numbers[i])) return false;
    return chunk.is_at_end();
}

// Two full chunks, one behind the other. Each number waits for the one before it in its chunk, and so a
// processor works on two at a time.
ZENC_HD inline bool decode_two_chunks(const u8* in, const u64* bytes, u32 bits, int* numbers) {
    ChunkDecoder first(in, bytes[0], bits), second(in + bytes[0], bytes[1], bits);
    for (u64 i = 0; i < CHUNK; ++i)
        if (!first.next(numbers[i]) || !second.next(numbers[CHUNK + i])) return false;
    return first.is_at_end() && second.is_at_end();
}

}  // namespace zenc
