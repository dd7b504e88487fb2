// The index elias_fano, from bitmaps and back: see EliasFano in formats.h.
#pragma once

#include "zenc_cpu/primitives/bits.h"

namespace zenc {

// Numbers of a few bits each, one after another.
struct BitStream {
    u64* out;
    u64 word = 0;
    u64 filled = 0;  // bits of `word`

    // `number` has no bits but its `bits` lowest; 0 < bits < 64.
    void put(u64 number, u64 bits) {
        word |= number << filled;
        filled += bits;
        if (filled < 64) return;
        *out++ = word;
        filled -= 64;
        word = number >> (bits - filled);
    }

    void finish() const {
        if (filled != 0) *out = word;
    }
};

// Writes slots in ascending order, as many as the shape says. `put` takes them as the numbers that are
// listed.
class EliasFanoWriter {
public:
    EliasFanoWriter(const EliasFano& shape, u64* out)
        : shape_(shape), low_{out}, high_(out + shape.low_words), high_end_(high_ + shape.high_words) {}

    // Returns false, and writes nothing, if they are too many. Changes `slots`.
    bool put(u64* slots, u64 n) {
        if (n > shape_.listed - written_) return false;
        for (u64 k = 0; k < n; ++k) slots[k] -= written_ + k;
        put_low(slots, n);
        put_high(slots, n);
        written_ += n;
        return true;
    }

    // Returns whether all are there.
    bool finish() {
        low_.finish();
        for (; high_ != high_end_; ++high_, high_word_ = 0) *high_ = high_word_;
        return written_ == shape_.listed;
    }

private:
    // The state is in local variables, which no write to the output can change.
    void put_low(const u64* numbers, u64 n) {
        const u64 bits = shape_.low;
        const u64 mask = low_mask(bits);
        const auto low = [=](u64 k) { return numbers[k] & mask; };
        BitStream stream = low_;
        u64 k = 0;
        if (bits < 16)
            for (; k + 4 <= n; k += 4) {
                const u64 two = low(k) | low(k + 1) << bits;
                stream.put(two | (low(k + 2) | low(k + 3) << bits) << 2 * bits, 4 * bits);
            }
        for (; k < n; ++k) stream.put(low(k), bits);
        low_ = stream;
    }

    void put_high(const u64* numbers, u64 n) {
        const u64 bits = shape_.low;
        u64* high = high_;
        u64 word = high_word_;
        u64 first = high_first_ - written_;  // bit 0 of `word`, less the numbers before
        for (u64 k = 0; k < n; ++k, --first) {
            u64 bit = (numbers[k] >> bits) - first;
            for (; bit >= 64; bit -= 64, first += 64, word = 0) *high++ = word;
            word |= 1ULL << bit;
        }
        high_ = high;
        high_word_ = word;
        high_first_ = first + written_ + n;
    }

    const EliasFano shape_;
    BitStream low_;
    u64* high_;
    u64* const high_end_;
    u64 high_word_ = 0;
    u64 high_first_ = 0;
    u64 written_ = 0;
};

// The set bits of the words from `w` on, each turned by `flip`, until there are at least `enough` of them.
// Returns how many; `out` has room for 64 more than `enough`.
template <u64 BLIND>
ZENC_SHARED_CODE u64 collect(const u64* bitmap, u64* w, u64 words, u64 flip, u64 enough, u64* out) {
    const u64* const begin = out;
    const u64* const end = out + enough;
    u64 at = *w;
    for (; at < words && out < end; ++at) out += append_bits<BLIND>(bitmap[at] ^ flip, 64 * at, out);
    *w = at;
    return static_cast<u64>(out - begin);
}

inline i64 encode_elias_fano(const u64* bitmap, u64 slots, u64 count, u64* out) {
    constexpr u64 BATCH = 1024;  // collected first: short loops are predicted better than one long one
    if (count > slots) return WRONG_COUNT;
    const EliasFano shape(slots, count);
    const u64 flip = shape.absent ? ~0ULL : 0;
    const u64 whole = slots / 64;
    const u64 in_a_word = whole == 0 ? 0 : shape.listed / whole;
    // More writes cost less than a wrong guess a word, where most words have more than two bits.
    const auto collect_some = in_a_word < 3 ? collect<2> : collect<8>;
    EliasFanoWriter writer(shape, out);
    u64 batch[BATCH + 64];
    for (u64 w = 0; w < whole;) {
        const u64 n = collect_some(bitmap, &w, whole, flip, BATCH, batch);
        if (!writer.put(batch, n)) return WRONG_COUNT;
    }
    if (slots % 64 != 0) {
        const u64 n = append_bits<2>((bitmap[whole] ^ flip) & low_mask(slots % 64), 64 * whole, batch);
        if (!writer.put(batch, n)) return WRONG_COUNT;
    }
    return writer.finish() ? 0 : WRONG_COUNT;
}

// Whether bits are set beyond the first `bits` of words_of(bits) words.
inline bool stray_bits(const u64* words, u64 bits) {
    return bits % 64 != 0 && (words[bits / 64] & ~low_mask(bits % 64)) != 0;
}

inline i64 decode_elias_fano(const u64* in, u64 slots, u64 count, u64* bitmap) {
    const EliasFano shape(slots, count);
    const u64* const high = in + shape.low_words;
    if (shape.absent)
        fill_bitmap(bitmap, slots);
    else
        clear_bytes(bitmap, words_of(slots) * 8);
    if (population(high, shape.high_words) != shape.listed) return WRONG_COUNT;
    if (stray_bits(in, shape.low_bits()) || stray_bits(high, shape.high_bits())) return STRAY_BITS;
    const u64 bits = shape.low;
    const u64 mask = low_mask(bits);
    const u8* const bytes = reinterpret_cast<const u8*>(in);
    u64 least = 0;    // the lowest number that may come next
    u64 low_bit = 0;  // where its low bits begin
    u64 i = 0;        // numbers that came before
    for (u64 w = 0; w < shape.high_words; ++w) {
        u64 word = high[w];
        for (const u64 end = i + population(word); i != end; ++i, word &= word - 1, low_bit += bits) {
            // Up to 57 bits from any bit on: no memory holds the bitmap of a part that has longer low bits.
            // The 8 bytes end in the first high word at the latest.
            u64 low;
            std::memcpy(&low, bytes + low_bit / 8, sizeof low);
            const u64 number = (64 * w - i + lowest_bit(word)) << bits | (low >> (low_bit % 8) & mask);
            if (number < least) return NOT_ASCENDING;
            if (number > shape.others) return OUT_OF_RANGE;
            const u64 slot = number + i;
            bitmap[slot / 64] ^= 1ULL << (slot % 64);
            least = number;
        }
    }
    return 0;
}

}  // namespace zenc
