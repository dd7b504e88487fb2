// Codes of blocks: what a block's scales are made of, and what integer stands for a value.
//
// A code says which facts it wants of a block: the greatest magnitude, up to two sums of a term of each
// value, how many are below 0. Sums have 32 lanes: lane i adds the terms of values i, i + 32, ... in this
// order, and lane i + 16 is added to lane i, and so on by halves.
#pragma once

#include "zenc/compress/layout.h"
#include "zenc/compress/steps.h"
#include "zenc/constants.h"

namespace zenc {

constexpr u64 SUM_LANES = 32;

struct BlockFacts {
    u64 values;
    u32 greatest;
    u64 negative;
    double sums[2];
};

ZENC_HD inline double root_of(double square) {
#if defined(__CUDA_ARCH__)
    return __dsqrt_rn(square);
#else
    return __builtin_sqrt(square);
#endif
}

// Whether a value is below 0, as 0 or 1: its sign, but for -0.
ZENC_HD inline u32 is_negative(float value) {
    return static_cast<u32>(bits_of(value) > 0x80000000U);
}

ZENC_HD inline bool is_finite_scale(const float* scale) {
    return magnitude_of(*scale) < INFINITE;
}

// The base of every code; `levels` are the steps on one side of 0.
struct BlockCode {
    u32 levels;

    static constexpr u64 SCALES = 1;
    static constexpr int SUMS = 0;
    static constexpr bool GREATEST = false;
    static constexpr bool NEGATIVE = false;
    static constexpr bool RANDOM = false;
    static constexpr bool SQUARED = false;  // whether terms are squares
    static constexpr bool TRITS = false;    // whether integers are packed as trits

    // A value's contribution to a sum.
    ZENC_HD static float part(int, float x) { return x; }
};

template <class Code>
ZENC_HD inline double term(int which, float x) {
    const double part = static_cast<double>(Code::part(which, x));
    return Code::SQUARED ? part * part : part;
}

struct Multiples : BlockCode {
    static constexpr bool GREATEST = true;

    ZENC_HD void scale(const BlockFacts& block, float* out) const {
        *out = step_of(float_of(block.greatest), levels);
    }

    ZENC_HD u32 number(float x, const float* scale, u32) const {
        const auto most = static_cast<int>(levels);
        return static_cast<u32>(clamp_to(nearest(x / divisor_of(*scale)), most) + most);
    }

    ZENC_HD float value(u32 number, const float* scale) const {
        return static_cast<float>(static_cast<int>(number) - static_cast<int>(levels)) * *scale;
    }
};

// E4M3 (Micikevicius et al., FP8 Formats for Deep Learning, 2022), divided by the least normal power of two
// for which the greatest of the block rounds to 448 or less. Beyond 1.75 * 2^127 values saturate.
struct Float8 : BlockCode {
    static constexpr bool GREATEST = true;
    static constexpr u32 MOST = 0x7e, NORMAL = 121U << 23;  // 448; 2^-6, below which are multiples of 2^-9

    // 1.8125 times a power of two is the greatest that rounds to 1.75 times it, as 448 is of 2^8.
    ZENC_HD void scale(const BlockFacts& block, float* out) const {
        const u32 exponent = (block.greatest + 0x17ffff) >> 23, most = exponent < 254 ? exponent : 254;
        *out = block.greatest < INFINITE ? float_of(((most > 9 ? most : 9) - 8) << 23) : not_a_number();
    }

    ZENC_HD u32 number(float x, const float* scale, u32) const {
        const u32 bits = bits_of(x / *scale), magnitude = bits & MAGNITUDE;
        const u32 normal = (magnitude - (120U << 23) + 0x7ffff + (magnitude >> 20 & 1)) >> 20;
        const u32 small = bits_of(float_of(magnitude) + 16384.0F) - bits_of(16384.0F);
        const u32 rounded = magnitude < NORMAL ? small : normal;
        return (rounded < MOST ? rounded : MOST) | (bits >> 24 & 0x80);
    }

    ZENC_HD float value(u32 number, const float* scale) const {
        const u32 magnitude = (number & 0x7f) << 20;
        const float small = float_of(magnitude + NORMAL) - float_of(NORMAL);
        const float normal = float_of(magnitude + (120U << 23));
        const float wide = (number & 0x78) == 0 ? small : (number & 0x7f) > MOST ? not_a_number() : normal;
        return float_of(bits_of(wide * *scale) | (number & 0x80) << 24);
    }
};

// Rounds at random to multiples of a share of a block's norm, or of its greatest magnitude.
template <bool NORM>
struct RandomMultiples : Multiples {
    static constexpr bool RANDOM = true, TRITS = !NORM;
    static constexpr int SUMS = NORM;
    static constexpr bool SQUARED = true;

    ZENC_HD void scale(const BlockFacts& block, float* out) const {
        const bool by_norm = NORM && block.greatest < INFINITE;
        *out =
            step_of(by_norm ? static_cast<float>(root_of(block.sums[0])) : float_of(block.greatest), levels);
    }

    ZENC_HD u32 number(float x, const float* scale, u32 random) const {
        const auto most = static_cast<int>(levels);
        return static_cast<u32>(clamp_to(random_side(x / divisor_of(*scale), random), most) + most);
    }
};

// Times the mean magnitude of the block; or as `VOTES`: times the contributions, `levels`, at random for 0.
template <bool VOTES>
struct Signs : BlockCode {
    static constexpr bool RANDOM = VOTES, GREATEST = VOTES;
    static constexpr int SUMS = !VOTES;

    ZENC_HD static float part(int, float x) { return float_of(magnitude_of(x)); }

    ZENC_HD void scale(const BlockFacts& block, float* out) const {
        const float mean = static_cast<float>(block.sums[0] / static_cast<double>(block.values));
        const float found = VOTES ? static_cast<float>(levels) : mean;
        *out = magnitude_of(VOTES ? float_of(block.greatest) : mean) < INFINITE ? found : not_a_number();
    }

    ZENC_HD u32 number(float x, const float*, u32 random) const {
        return VOTES && magnitude_of(x) == 0 ? random >> 31 : is_negative(x);
    }

    ZENC_HD float value(u32 number, const float* scale) const {
        return float_of(bits_of(*scale) ^ number << 31);
    }
};

struct Means : BlockCode {
    static constexpr u64 SCALES = 2;
    static constexpr int SUMS = 2;
    static constexpr bool NEGATIVE = true;

    // A value's contribution to the sum of values at or above 0 (`which` = 0), or to that of those below.
    ZENC_HD static float part(int which, float x) {
        const u32 negative = is_negative(x);
        return float_of(bits_of(x) & (which == 0 ? negative - 1 : 0 - negative));
    }

    ZENC_HD static float mean(double sum, u64 n) {
        return n == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(n));
    }

    ZENC_HD void scale(const BlockFacts& block, float* out) const {
        out[0] = mean(block.sums[0], block.values - block.negative);
        out[1] = mean(block.sums[1], block.negative);
        if (magnitude_of(out[0]) >= INFINITE || magnitude_of(out[1]) >= INFINITE)
            out[0] = out[1] = not_a_number();
    }

    ZENC_HD u32 number(float x, const float*, u32) const { return is_negative(x); }

    ZENC_HD float value(u32 number, const float* scale) const {
        const u32 above = bits_of(scale[0]), change = above ^ bits_of(scale[1]);
        return float_of(above ^ (change & (0U - number)));
    }
};

// use(code) for the block code of a number.
template <class Use>
ZENC_HD inline auto with_code(i64 number, i64 levels, Use use) {
    const BlockCode of{static_cast<u32>(levels)};
    switch (number) {
        case INT_CODE:
            return use(Multiples{of});
        case FP8_CODE:
            return use(Float8{of});
        case LEVELS_CODE:
            return use(RandomMultiples<true>{{of}});
        case SIGN_CODE:
            return use(Signs<false>{of});
        case VOTE_CODE:
            return use(Signs<true>{of});
        case ONEBIT_CODE:
            return use(Means{of});
        default:
            return use(RandomMultiples<false>{{of}});
    }
}

}  // namespace zenc
