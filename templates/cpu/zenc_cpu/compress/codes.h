// Codes of blocks: a scale of each, and an integer of each value. What is lost is added to `loss` on the way.
//
// Values are worked on in stretches that stay in the first cache: read, rounded, packed, decoded, subtracted.
// A block longer than a stretch is read twice, from the second cache or from where it is.
#pragma once

#include <cmath>

#include "zenc/compress/steps.h"
#include "zenc_cpu/compress/accumulate.h"
#include "zenc_cpu/compress/packed.h"
#include "zenc_cpu/compress/random.h"

namespace zenc {

// Sums of a block: 32 of them side by side, value i in lane i mod 32, then lane i + 16 is added to lane i,
// and so on by halves. The same on every target, whatever its vectors.
class LaneSums {
public:
    template <class Term>
    void add(const float* values, u64 n, Term term) {
        u64 i = 0;
        for (; i + 32 <= n; i += 32)
            for (u64 lane = 0; lane < 32; ++lane) lanes_[lane] += term(values[i + lane]);
        for (u64 lane = 0; i < n; ++i, ++lane) lanes_[lane] += term(values[i]);
    }

    double sum() {
        for (u64 half = 16; half != 0; half /= 2)
            for (u64 lane = 0; lane < half; ++lane) lanes_[lane] += lanes_[lane + half];
        return lanes_[0];
    }

private:
    double lanes_[32] = {};
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

template <class T, class Term>
inline double sum_of_block(const T* values, u64 n, Term term) {
    LaneSums sums;
    in_pieces(values, n, [&](const float* piece, u64 length) { sums.add(piece, length, term); });
    return sums.sum();
}

// A code has: SCALES a block; how it packs; scale(values, n, out); quantise(x, n, scale, random, q), where
// random words are those of the slots, if it is RANDOM; decode(q, n, scale, y).
struct Multiples {
    u32 levels;

    static constexpr u64 SCALES = 1;
    static constexpr bool RANDOM = false;

    template <class T>
    void scale(const T* values, u64 n, float* out) const {
        *out = step_of(float_of(greatest_of_block(values, n)), levels);
    }

    void quantise(const float* x, u64 n, const float* scale, const u32*, u32* q) const {
        const float divisor = divisor_of(*scale);
        const auto most = static_cast<int>(levels);
        for (u64 i = 0; i < n; ++i) q[i] = static_cast<u32>(clamp_to(nearest(x[i] / divisor), most) + most);
    }

    void decode(const u32* q, u64 n, const float* scale, float* y) const {
        const auto most = static_cast<int>(levels);
        const float step = *scale;
        for (u64 i = 0; i < n; ++i) y[i] = static_cast<float>(static_cast<int>(q[i]) - most) * step;
    }
};

// At random: of the norm of a block, or of its greatest magnitude.
template <bool NORM>
struct RandomMultiples {
    u32 levels;

    static constexpr u64 SCALES = 1;
    static constexpr bool RANDOM = true;

    template <class T>
    void scale(const T* values, u64 n, float* out) const {
        float reach = float_of(greatest_of_block(values, n));
        if (NORM && magnitude_of(reach) < INFINITE) {
            const double squares =
                sum_of_block(values, n, [](float x) { return static_cast<double>(x) * x; });
            reach = static_cast<float>(std::sqrt(squares));
        }
        *out = step_of(reach, levels);
    }

    void quantise(const float* x, u64 n, const float* scale, const u32* random, u32* q) const {
        const float divisor = divisor_of(*scale);
        const auto most = static_cast<int>(levels);
        for (u64 i = 0; i < n; ++i)
            q[i] = static_cast<u32>(clamp_to(random_side(x[i] / divisor, random[i]), most) + most);
    }

    void decode(const u32* q, u64 n, const float* scale, float* y) const {
        Multiples{levels}.decode(q, n, scale, y);
    }
};

// Whether a value is below 0, as 0 or 1: its sign, but for -0.
inline u32 is_negative(float value) {
    return static_cast<u32>(bits_of(value) > 0x80000000U);
}

struct Signs {
    static constexpr u64 SCALES = 1;
    static constexpr bool RANDOM = false;

    template <class T>
    void scale(const T* values, u64 n, float* out) const {
        const double sum =
            sum_of_block(values, n, [](float x) { return static_cast<double>(float_of(magnitude_of(x))); });
        const float mean = static_cast<float>(sum / static_cast<double>(n));
        *out = magnitude_of(mean) < INFINITE ? mean : not_a_number();
    }

    void quantise(const float* x, u64 n, const float*, const u32*, u32* q) const {
        for (u64 i = 0; i < n; ++i) q[i] = is_negative(x[i]);
    }

    void decode(const u32* q, u64 n, const float* scale, float* y) const {
        const u32 mean = bits_of(*scale);
        for (u64 i = 0; i < n; ++i) y[i] = float_of(mean ^ q[i] << 31);
    }
};

struct Means {
    static constexpr u64 SCALES = 2;
    static constexpr bool RANDOM = false;

    template <class T>
    void scale(const T* values, u64 n, float* out) const {
        const double above = sum_of_block(values, n, [](float x) {
            return static_cast<double>(float_of(bits_of(x) & (is_negative(x) - 1)));
        });
        const double below = sum_of_block(values, n, [](float x) {
            return static_cast<double>(float_of(bits_of(x) & (0 - is_negative(x))));
        });
        u64 negative = 0;
        in_pieces(values, n, [&](const float* piece, u64 length) {
            u32 found = 0;
            for (u64 i = 0; i < length; ++i) found += is_negative(piece[i]);
            negative += found;
        });
        out[0] = negative == n ? 0.0F : static_cast<float>(above / static_cast<double>(n - negative));
        out[1] = negative == 0 ? 0.0F : static_cast<float>(below / static_cast<double>(negative));
        if (magnitude_of(out[0]) >= INFINITE || magnitude_of(out[1]) >= INFINITE)
            out[0] = out[1] = not_a_number();
    }

    void quantise(const float* x, u64 n, const float*, const u32*, u32* q) const {
        for (u64 i = 0; i < n; ++i) q[i] = is_negative(x[i]);
    }

    void decode(const u32* q, u64 n, const float* scale, float* y) const {
        const u32 above = bits_of(scale[0]), change = above ^ bits_of(scale[1]);
        for (u64 i = 0; i < n; ++i) y[i] = float_of(above ^ (change & (0U - q[i])));
    }
};

inline bool is_finite_scale(const float* scale) {
    return magnitude_of(*scale) < INFINITE;
}

// What a code makes of n values is written to `decoded`, which may be where they are, and what it loses
// added.
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
                code.scale(values + number * block, length, scale);
                std::memcpy(scales + number * SCALE_BYTES, scale, SCALE_BYTES);
                ++scaled;
            }
            if (is_finite_scale(scale))
                code.quantise(x + first, end - first, scale, Code::RANDOM ? random + first : nullptr,
                              q + first);
            else
                std::memset(q + first, 0, (end - first) * sizeof(u32));
            if (decoded || loss) code.decode(q + first, end - first, scale, y + first);
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
            float scale[2];
            std::memcpy(scale, in + number * SCALE_BYTES, SCALE_BYTES);
            code.decode(q + first, end - first, scale, y + first);
        });
        for (u64 i = 0; i < n; ++i) values[start + i] = Type<T>::round(y[i]);
    }
}

}  // namespace zenc
