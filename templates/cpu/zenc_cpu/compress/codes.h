// Codes of blocks: a scale of each, and an integer of each value. What is lost is added to `loss` on the way.
//
// Values are worked on in stretches that stay in the first cache: read, rounded, packed, decoded, subtracted.
// A block longer than a stretch is read twice, from the second cache or from where it is.
#pragma once

#include "zenc/compress/codes.h"
#include "zenc_cpu/compress/accumulate.h"
#include "zenc_cpu/compress/packed.h"
#include "zenc_cpu/compress/random.h"

namespace zenc {

// The sums of a block that a code wants, in lanes.
template <class Code>
class LaneSums {
public:
    void add(const float* values, u64 n) {
        if (Code::SQUARED) return add_parts(values, n, lanes_[0]);  // of values as they are
        float parts[STRETCH];
        for (u64 first = 0; first < n; first += STRETCH) {
            const u64 length = n - first < STRETCH ? n - first : STRETCH;
            for (int which = 0; which < Code::SUMS; ++which) {
                for (u64 i = 0; i < length; ++i) parts[i] = Code::part(which, values[first + i]);
                add_parts(parts, length, lanes_[which]);
            }
        }
    }

    void write(double* sums) {
        for (int which = 0; which < Code::SUMS; ++which) {
            double* const lanes = lanes_[which];
            for (u64 half = SUM_LANES / 2; half != 0; half /= 2)
                for (u64 lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
            sums[which] = lanes[0];
        }
    }

private:
    static void add_parts(const float* parts, u64 n, double* lanes) {
        auto* const sums = reinterpret_cast<Doubles*>(lanes);
        Doubles a = sums[0], b = sums[1], c = sums[2], d = sums[3];
        u64 i = 0;
        for (; i + SUM_LANES <= n; i += SUM_LANES) {
            add_wide<Code::SQUARED>(a, parts + i);
            add_wide<Code::SQUARED>(b, parts + i + 8);
            add_wide<Code::SQUARED>(c, parts + i + 16);
            add_wide<Code::SQUARED>(d, parts + i + 24);
        }
        sums[0] = a, sums[1] = b, sums[2] = c, sums[3] = d;
        for (u64 lane = 0; i < n; ++i, ++lane) {
            const double wide = parts[i];
            lanes[lane] += Code::SQUARED ? wide * wide : wide;
        }
    }

    alignas(64) double lanes_[2][SUM_LANES] = {};
};

// visit(values, n) for a block's values as float32, in pieces whose lengths are multiples of 32 but the last.
template <class T, class Visit>
inline void in_pieces(const T* values, u64 n, Visit visit) {
    if constexpr (sizeof(T) == sizeof(float)) {
        visit(values, n);
    } else {
        float wide[STRETCH];
        for (u64 first = 0; first < n; first += STRETCH) {
            const u64 length = n - first < STRETCH ? n - first : STRETCH;
            widen_all(values + first, length, wide);
            visit(static_cast<const float*>(wide), length);
        }
    }
}

template <class T>
inline u32 greatest_of_block(const T* values, u64 n) {
    u32 greatest = 0;
    in_pieces(values, n, [&](const float* piece, u64 length) {
        const u32 most = greatest_magnitude(piece, length);
        greatest = most > greatest ? most : greatest;
    });
    return greatest;
}

template <class Code, class T>
inline void scale_block(const Code& code, const T* values, u64 n, float* out) {
    BlockFacts facts{n, 0, 0, {0, 0}};
    if (Code::GREATEST) facts.greatest = greatest_of_block(values, n);
    if (Code::SUMS) {
        LaneSums<Code> sums;
        in_pieces(values, n, [&](const float* piece, u64 length) { sums.add(piece, length); });
        sums.write(facts.sums);
    }
    if (Code::NEGATIVE)
        in_pieces(values, n, [&](const float* piece, u64 length) {
            u32 found = 0;
            for (u64 i = 0; i < length; ++i) found += is_negative(piece[i]);
            facts.negative += found;
        });
    code.scale(facts, out);
}

// The random words are those of the slots of x.
template <class Code>
inline void quantise(const Code& code, const float* x, u64 n, const float* scale, const u32* random, u32* q) {
    const float held[2] = {scale[0], scale[1]};
    for (u64 i = 0; i < n; ++i) q[i] = code.number(x[i], held, Code::RANDOM ? random[i] : 0);
}

template <class Code>
inline void dequantise(const Code& code, const u32* q, u64 n, const float* scale, float* y) {
    const float held[2] = {scale[0], scale[1]};
    for (u64 i = 0; i < n; ++i) y[i] = canonical(code.value(q[i], held));
}

// Writes what a code makes of n values to `decoded`, which may be where they are, and adds what it loses.
template <class T>
inline void write_decoded(const float* x, const float* y, u64 n, T* decoded, float* loss) {
    if constexpr (sizeof(T) == sizeof(float)) {
        if (loss)
            for (u64 i = 0; i < n; ++i) loss[i] += x[i] - y[i];
        if (decoded) std::memcpy(decoded, y, n * sizeof(float));
    } else {
        T rounded[2 * PACKED_WINDOW];
        for (u64 i = 0; i < n; ++i) rounded[i] = Type<T>::round(y[i]);
        if (loss)
            for (u64 i = 0; i < n; ++i) loss[i] += x[i] - Type<T>::widen(rounded[i]);
        if (decoded) std::memcpy(static_cast<void*>(decoded), rounded, n * sizeof(T));
    }
}

// visit(block, first, end) for the parts of blocks that are in a stretch of n values from `start`.
template <class Visit>
inline void for_blocks(u64 start, u64 n, u64 block, Visit visit) {
    for (u64 at = start; at < start + n;) {
        const u64 number = at / block;
        const u64 end = (number + 1) * block < start + n ? (number + 1) * block : start + n;
        visit(number, at - start, end - start);
        at = end;
    }
}

// Write the scales and the packed integers of `values` to `out`. Returns the bytes.
template <class Code, class Packing, class T>
inline u64 encode_blocks(const Code& code, const Packing& packing, const T* values, u64 count, u64 block,
                         u64 key, u8* out, T* decoded, float* loss) {
    constexpr u64 MOST = Packing::MOST;
    constexpr u64 SCALE_BYTES = Code::SCALES * sizeof(float);
    u8* const scales = out;
    u8* packed = out + ceil_divide(count, block) * SCALE_BYTES;
    u64 scaled = 0;  // blocks whose scale is known
    float scale[2] = {};
    float wide[MOST], y[MOST];
    u32 q[MOST], random[Code::RANDOM ? MOST : 1];
    for (u64 start = 0; start < count; start += MOST) {
        const u64 n = count - start < MOST ? count - start : MOST;
        const float* const x = as_floats(values + start, n, wide);
        if (Code::RANDOM) random_words(key, start, ceil_divide(n, DRAWN_TOGETHER), random);
        for_blocks(start, n, block, [&](u64 number, u64 first, u64 end) {
            if (number == scaled) {
                const u64 length = count - number * block < block ? count - number * block : block;
                scale_block(code, values + number * block, length, scale);
                std::memcpy(scales + number * SCALE_BYTES, scale, SCALE_BYTES);
                ++scaled;
            }
            if (is_finite_scale(scale))
                quantise(code, x + first, end - first, scale, Code::RANDOM ? random + first : nullptr,
                         q + first);
            else
                std::memset(q + first, 0, (end - first) * sizeof(u32));
            if (decoded || loss) dequantise(code, q + first, end - first, scale, y + first);
        });
        packing.pack(q, n, packed);
        packed += packing.bytes(n);
        if (decoded || loss)
            write_decoded(x, y, n, decoded ? decoded + start : nullptr, loss ? loss + start : nullptr);
    }
    return static_cast<u64>(packed - out);
}

// The values that `in` means. Integers of a code's bits that it never writes mean what they say.
template <class Code, class Packing, class T>
inline void decode_blocks(const Code& code, const Packing& packing, const u8* in, u64 count, u64 block,
                          T* values) {
    constexpr u64 MOST = Packing::MOST;
    constexpr u64 SCALE_BYTES = Code::SCALES * sizeof(float);
    const u8* packed = in + ceil_divide(count, block) * SCALE_BYTES;
    float y[MOST];
    u32 q[MOST];
    for (u64 start = 0; start < count; start += MOST) {
        const u64 n = count - start < MOST ? count - start : MOST;
        packing.unpack(packed, n, q);
        packed += packing.bytes(n);
        for_blocks(start, n, block, [&](u64 number, u64 first, u64 end) {
            float scale[2] = {};
            std::memcpy(scale, in + number * SCALE_BYTES, SCALE_BYTES);
            dequantise(code, q + first, end - first, scale, y + first);
        });
        for (u64 i = 0; i < n; ++i) values[start + i] = Type<T>::round(y[i]);
    }
}

}  // namespace zenc
