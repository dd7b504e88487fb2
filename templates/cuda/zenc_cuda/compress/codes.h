// Codes of blocks on GPUs: a warp a block for its scales, then a warp a window of packed integers.
//
// The arithmetic, the order of sums and the layout are those of the shared headers: the bytes are the CPU's.
#pragma once

#include "zenc/compress/coding.h"
#include "zenc_cuda/platform.h"

namespace zenc {

ZENC_DEVICE void raise(u32& greatest, u32 value) {
    greatest = value > greatest ? value : greatest;
}

ZENC_DEVICE u32 greatest_of_warp(u32 value) {
    for (int by = WARP / 2; by != 0; by /= 2) raise(value, __shfl_xor_sync(ALL_LANES, value, by));
    return value;
}

// Adds lanes 16 apart first, then 8 apart: lane 0 gets the same sum as from LaneSums on CPUs.
ZENC_DEVICE double sum_of_lanes(double value) {
    for (int by = WARP / 2; by != 0; by /= 2) value += __shfl_xor_sync(ALL_LANES, value, by);
    return value;
}

// Values as a code reads them: with what is added, and with +0 for each -0 if signs are cleared.
template <class T>
struct Source {
    const T* values;
    const float* before;  // or null
    u64 how;

    ZENC_DEVICE float at(u64 i) const {
        const float x = Type<T>::widen(values[i]), sum = before == nullptr ? x : before[i] + x;
        return sum + ((how & CLEARS_SIGNS) != 0 ? 0.0F : -0.0F);  // -0 changes no value
    }
};

// Writes the scales of blocks at, at + by, ..., up to that of value `end`, to their places in `out`.
template <class Code, class T>
ZENC_DEVICE void scale_blocks(const Code& code, const Source<T>& from, u64 at, u64 by, u64 end, u64 block,
                              float* out) {
    for (; at * block < end; at += by) {
        BlockFacts facts{end - at * block < block ? end - at * block : block, 0, 0, {0, 0}};
        for (u64 i = lane(); i < facts.values; i += WARP) {
            const float x = from.at(at * block + i);
            raise(facts.greatest, magnitude_of(x));
            facts.negative += is_negative(x);
            for (int sum = 0; sum < Code::SUMS; ++sum) facts.sums[sum] += term<Code>(sum, x);
        }
        facts.greatest = greatest_of_warp(facts.greatest);
        facts.negative = sum_of_warp(facts.negative);
        for (int sum = 0; sum < Code::SUMS; ++sum) facts.sums[sum] = sum_of_lanes(facts.sums[sum]);
        float scale[2];
        code.scale(facts, scale);
        if (lane() < Code::SCALES) out[at * Code::SCALES + lane()] = lane() == 0 ? scale[0] : scale[1];
    }
}

// The random words of slots, four of which are drawn at once.
class Drawn {
public:
    ZENC_DEVICE u32 word(u64 key, u64 slot) {
        if (const u64 number = slot / DRAWN_TOGETHER * 32 + slot % 32; number != number_) {
            number_ = number;
            words_ = philox(key, number, 0);
        }
        const u32 k = slot / 32 % 4;
        return k < 2 ? k == 0 ? words_.word[0] : words_.word[1] : k == 2 ? words_.word[2] : words_.word[3];
    }

private:
    u64 number_ = ~0ULL;
    Philox words_{};
};

// The place for the losses of values: they are added to what lies there, or replace it.
struct Loss {
    float* at;  // or null
    u64 how;

    ZENC_DEVICE float before(u64 i) const { return at != nullptr && (how & SETS_LOSS) == 0 ? at[i] : 0.0F; }
};

// Values under a code: the number of each, the value that it means, and the loss.
template <class Code, class T>
struct Coded {
    const Code& code;
    const float* scales;
    Divider block;
    u64 key;
    Source<T> from;
    T* decoded;
    Loss loss;

    // Encodes values i, i + 32, ... Each is read before it is written: `decoded` may be `values`.
    template <u32 N>
    ZENC_DEVICE void encode_all(u64 i, Drawn& drawn, u32 (&numbers)[N]) const {
        const bool have_one_block = block.divisor % (N * PACKED_LANES) == 0;
        float x[N], lost[N], by[N][Code::SCALES];
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            const u64 at = i + k * PACKED_LANES;
            x[k] = from.at(at);
            lost[k] = loss.before(at);
            const u64 scale = k == 0 || !have_one_block ? block.quotient(at) * Code::SCALES : 0;
            for (u64 s = 0; s < Code::SCALES; ++s)
                by[k][s] = k == 0 || !have_one_block ? scales[scale + s] : by[0][s];
        }
        // One Philox call serves four numbers if the first is among the first 32 of those that draw together.
        constexpr bool AT_ONCE = Code::RANDOM && N == DRAWN_TOGETHER / PACKED_LANES;
        const Philox words = AT_ONCE ? philox(key, i / DRAWN_TOGETHER * 32 + i % 32, 0) : Philox{};
#pragma unroll
        for (u32 k = 0; k < N; ++k) {
            const u64 at = i + k * PACKED_LANES;
            const u32 random = AT_ONCE ? words.word[k % 4] : Code::RANDOM ? drawn.word(key, at) : 0;
            numbers[k] = encode(at, x[k], lost[k], by[k], random);
        }
    }

    ZENC_DEVICE u32 encode(u64 i, Drawn& drawn) const {
        u32 number[1];
        encode_all(i, drawn, number);
        return number[0];
    }

private:
    // Encodes value i, given its loss so far, its scale and a random word.
    ZENC_DEVICE u32 encode(u64 i, float x, float lost, const float* by, u32 random) const {
        const u32 found = is_finite_scale(by) ? code.number(x, by, random) : 0;
        if (loss.at == nullptr && decoded == nullptr) return found;
        const T rounded = Type<T>::round(code.value(found, by));
        if (loss.at) loss.at[i] = lost + (x - Type<T>::widen(rounded));
        if (decoded) decoded[i] = rounded;
        return found;
    }
};

// Packs a window of 1,024 values from `first` on.
template <class Of>
ZENC_DEVICE void pack_window(const Of& of, u64 first, u32 bits, u8* out, Drawn& drawn) {
    auto* word = reinterpret_cast<u32*>(out) + lane();
    u64 held = 0;
    u32 filled = 0;
    constexpr u32 TOGETHER = DRAWN_TOGETHER / PACKED_LANES;
#pragma unroll 1
    for (u64 rows = 0; rows < PACKED_ROWS; rows += TOGETHER) {
        u32 numbers[TOGETHER];
        of.encode_all(first + rows * PACKED_LANES + lane(), drawn, numbers);
#pragma unroll
        for (u32 row = 0; row < TOGETHER; ++row) {
            held |= static_cast<u64>(numbers[row]) << filled;
            filled += bits;
            if (filled < 32) continue;
            *word = static_cast<u32>(held);
            word += PACKED_LANES;
            held >>= 32;
            filled -= 32;
        }
    }
}

// Packs the n values behind the last window: eight of a lane make whole bytes.
template <class Of>
ZENC_DEVICE void pack_rest(const Of& of, u64 first, u64 n, u32 bits, u8* out, Drawn& drawn) {
    for (u64 at = 8 * lane(); at < n; at += 8 * WARP) {
        u8* byte = out + at / 8 * bits;
        u64 held = 0;
        u32 filled = 0;
#pragma unroll 1
        for (u64 i = at; i < n && i < at + 8; ++i) {
            held |= static_cast<u64>(of.encode(first + i, drawn)) << filled;
            for (filled += bits; filled >= 8; filled -= 8, held >>= 8) *byte++ = static_cast<u8>(held);
        }
        if (filled != 0) *byte = static_cast<u8>(held);
    }
}

// visit(place, number) for the numbers of a window, as pack_window has written them.
template <class Visit>
ZENC_DEVICE void unpack_window(const u8* window, u32 bits, Visit visit) {
    const auto* word = reinterpret_cast<const u32*>(window) + lane();
    const u32 mask = static_cast<u32>(low_mask(bits));
    u64 held = 0;
    u32 filled = 0;
    for (u64 row = 0; row < PACKED_ROWS; ++row) {
        if (filled < bits) {
            held |= static_cast<u64>(*word) << filled;
            word += PACKED_LANES;
            filled += 32;
        }
        visit(row * PACKED_LANES + lane(), static_cast<u32>(held) & mask);
        held >>= bits;
        filled -= bits;
    }
}

// Packs a window of 160 trits: a lane makes a byte of five.
template <class Of>
ZENC_DEVICE void pack_trits(const Of& of, u64 first, u8* out, Drawn& drawn) {
    u32 trits[TRITS], byte = 0;
    of.encode_all(first + lane(), drawn, trits);
#pragma unroll
    for (u32 row = 0; row < TRITS; ++row) byte = add_trit(byte, trits[row]);
    out[lane()] = static_cast<u8>(byte);
}

// Packs the n trits behind the last window, five a byte.
template <class Of>
ZENC_DEVICE void pack_last_trits(const Of& of, u64 first, u64 n, u8* out, Drawn& drawn) {
    for (u64 at = lane(); at < ceil_divide(n, TRITS); at += WARP) {
        u32 byte = 0;
        for (u64 i = at * TRITS; i < (at + 1) * TRITS; ++i)
            byte = add_trit(byte, i < n ? of.encode(first + i, drawn) : 0);
        out[at] = static_cast<u8>(byte);
    }
}

// Writes scales and the integers behind them; a warp has a `span` of whole blocks and windows. With a span of
// 0 the scales are there already.
template <class Code, class T>
ZENC_DEVICE void encode_values(const Code& code, const Source<T>& from, u64 n, u64 block, u64 span, u32 bits,
                               u64 key, u8* out, T* decoded, const Loss& loss) {
    auto* const scales = reinterpret_cast<float*>(out);
    const Coded<Code, T> of{code, scales, Divider(block), key, from, decoded, loss};
    u8* const packed = out + ceil_divide(n, block) * Code::SCALES * sizeof(float);
    constexpr u64 WINDOW = Code::TRITS ? TRIT_WINDOW : PACKED_WINDOW;
    const u64 window_bytes = Code::TRITS ? PACKED_LANES : bits * PACKED_WINDOW / 8;
    const u64 together = span == 0 ? WINDOW : span;
    for (u64 begin = warp_of_row() * together; begin < n; begin += warps_of_row() * together) {
        const u64 end = n - begin < together ? n : begin + together;
        if (span != 0) scale_blocks(code, from, begin / block, 1, end, block, scales);
        __syncwarp();
        Drawn drawn;
#pragma unroll 1
        for (u64 first = begin; first < end; first += WINDOW) {
            const u64 left = end - first < WINDOW ? end - first : WINDOW;
            u8* const to = packed + first / WINDOW * window_bytes;
            if (Code::TRITS && left == WINDOW) {
                pack_trits(of, first, to, drawn);
            } else if (Code::TRITS) {
                pack_last_trits(of, first, left, to, drawn);
            } else if (left == WINDOW) {
                pack_window(of, first, bits, to, drawn);
            } else {
                pack_rest(of, first, left, bits, to, drawn);
            }
        }
    }
}

// Returns number i of n packed ones, of `bits` bits each. `packed` is aligned to a Word: to 4 bytes, or with
// Word = u8 not at all.
template <class Word = u32>
ZENC_DEVICE u32 packed_number(const u8* packed, u64 i, u64 n, u32 bits) {
    const u64 first = i / PACKED_WINDOW * PACKED_WINDOW, place = i - first;
    const u8* const window = packed + first * bits / 8;
    const u32 mask = static_cast<u32>(low_mask(bits));
    const auto bytes = [&](u64 begin, u64 end) {
        u64 held = 0;
        for (u64 byte = begin; byte < end; ++byte)
            held |= static_cast<u64>(window[byte]) << (8 * (byte - begin));
        return held;
    };
    if (n - first < PACKED_WINDOW)
        return static_cast<u32>(bytes(place * bits / 8, (place * bits + bits + 7) / 8) >>
                                (place * bits % 8)) &
               mask;
    const auto word = [&](u64 row) -> u64 {
        const u64 at = row * PACKED_LANES + place % PACKED_LANES;
        return sizeof(Word) == 4 ? reinterpret_cast<const u32*>(window)[at] : bytes(4 * at, 4 * at + 4);
    };
    const u64 bit = place / PACKED_LANES * bits;
    u64 held = word(bit / 32);
    if (bit % 32 + bits > 32) held |= word(bit / 32 + 1) << 32;
    return static_cast<u32>(held >> bit % 32) & mask;
}

ZENC_DEVICE u32 packed_trit(const u8* packed, u64 i, u64 n) {
    const u64 first = i / TRIT_WINDOW * TRIT_WINDOW, place = i - first;
    const bool whole = n - first >= TRIT_WINDOW;
    u32 fraction = trits_of(packed[first / TRITS + (whole ? place % PACKED_LANES : place / TRITS)]);
    u32 trit = 0;
    for (u64 row = 0; row <= (whole ? place / PACKED_LANES : place % TRITS); ++row)
        trit = next_trit(fraction);
    return trit;
}

template <class Code, class T>
ZENC_DEVICE void decode_values(const Code& code, const u8* in, u64 n, u64 block, u32 bits, T* values) {
    constexpr u64 WINDOW = Code::TRITS ? TRIT_WINDOW : PACKED_WINDOW;
    const u64 window_bytes = Code::TRITS ? PACKED_LANES : bits * PACKED_WINDOW / 8;
    const auto* const scales = reinterpret_cast<const float*>(in);
    const u8* const packed = in + ceil_divide(n, block) * Code::SCALES * sizeof(float);
    const Divider of_block(block);
    for (u64 at = warp_of_row(); at * WINDOW < n; at += warps_of_row()) {
        const u64 first = at * WINDOW;
        const auto decode = [&](u64 place, u32 number) {
            const float* const scale = scales + of_block.quotient(first + place) * Code::SCALES;
            values[first + place] = Type<T>::round(code.value(number, scale));
        };
        if (n - first < WINDOW)
            for (u64 i = first + lane(); i < n; i += WARP)
                decode(i - first,
                       Code::TRITS ? packed_trit(packed, i, n) : packed_number(packed, i, n, bits));
        else if constexpr (Code::TRITS)
            for (u32 row = 0, fraction = trits_of(packed[at * window_bytes + lane()]); row < TRITS; ++row)
                decode(row * PACKED_LANES + lane(), next_trit(fraction));
        else
            unpack_window(packed + at * window_bytes, bits, decode);
    }
}

// Encodes in 16 bits: a thread a value.
template <class To, class T>
ZENC_DEVICE void encode_rounded(bool at_random, u64 key, const Source<T>& from, u64 n, To* out, T* decoded,
                                const Loss& loss) {
    for (u64 i = thread_of_row(); i < n; i += threads_of_row()) {
        const float x = from.at(i);
        out[i] = at_random ? random_round<To>(x, random_word(key, i)) : Type<To>::round(x);
        const T rounded = Type<T>::round(Type<To>::widen(out[i]));
        if (loss.at) loss.at[i] = loss.before(i) + (x - Type<T>::widen(rounded));
        if (decoded) decoded[i] = rounded;
    }
}

template <class From, class T>
ZENC_DEVICE void decode_rounded(const From* in, u64 n, T* values) {
    for (u64 i = thread_of_row(); i < n; i += threads_of_row())
        values[i] = Type<T>::round(Type<From>::widen(in[i]));
}

template <class T>
ZENC_DEVICE void encode(const Coding& by, u64 key, const Source<T>& from, u64 n, u8* out, T* decoded,
                        const Loss& loss) {
    const bool at_random = by.levels != 1;
    if (by.number == F16_CODE)
        return encode_rounded(at_random, key, from, n, reinterpret_cast<f16*>(out), decoded, loss);
    if (by.number == BF16_CODE)
        return encode_rounded(at_random, key, from, n, reinterpret_cast<bf16*>(out), decoded, loss);
    with_code(by.number, by.levels, [&](const auto& code) {
        encode_values(code, from, n, static_cast<u64>(by.block), span_of(by), static_cast<u32>(by.bits), key,
                      out, decoded, loss);
    });
}

template <class T>
ZENC_DEVICE void decode(const Coding& by, const u8* in, u64 n, T* values) {
    if (by.number == F16_CODE) return decode_rounded(reinterpret_cast<const f16*>(in), n, values);
    if (by.number == BF16_CODE) return decode_rounded(reinterpret_cast<const bf16*>(in), n, values);
    with_code(by.number, by.levels, [&](const auto& code) {
        decode_values(code, in, n, static_cast<u64>(by.block), static_cast<u32>(by.bits), values);
    });
}

}  // namespace zenc
