// Basics of all targets: integer names, host+device functions, wide products.
//
// No standard header is included: NVRTC has none. A target that compiles this text in another way (an
// emulator, say) may define ZENC_HD itself.
#pragma once

#ifndef ZENC_HD
#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define ZENC_HD __host__ __device__
#else
#define ZENC_HD
#endif
#endif

namespace zenc {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

static_assert(sizeof(u16) == 2 && sizeof(u32) == 4 && sizeof(u64) == 8, "the usual integer sizes");

#if !defined(__CUDA_ARCH__)
__extension__ typedef unsigned __int128 u128;
#endif

// The upper 64 bits of a * b.
ZENC_HD inline u64 multiply_high(u64 a, u64 b) {
#if defined(__CUDA_ARCH__)
    return __umul64hi(a, b);
#else
    return static_cast<u64>((static_cast<u128>(a) * b) >> 64);
#endif
}

ZENC_HD inline u64 ceil_divide(u64 a, u64 b) {
    return a / b + (a % b != 0);
}

// Division by a number that is known only at run time, at the price of a multiplication: 64-bit division
// costs up to 40 cycles on older processors and more than 100 instructions on a GPU.
struct Divider {
    u64 divisor;
    u64 reciprocal;

    // A divisor of 0 (an empty tensor) divides nothing; it becomes 1.
    ZENC_HD explicit Divider(u64 d) : divisor(d ? d : 1), reciprocal(~0ULL / divisor) {}

    // x / divisor, for x < 2^63. The estimate is at most one too small: x * (2^64 / d - reciprocal) / 2^64 <
    // 1 + 1/d.
    ZENC_HD u64 quotient(u64 x) const {
        const u64 estimate = multiply_high(x, reciprocal);
        return estimate + (x - estimate * divisor >= divisor);
    }

    // x / divisor, for a divisor below 2^32, in arithmetic that vectors have. The upper half of the
    // reciprocal is floor((2^32 - 1) / divisor), so that this estimate, too, is at most one too small.
    ZENC_HD u32 quotient(u32 x) const {
        const u32 by = static_cast<u32>(divisor);
        const u32 estimate =
            static_cast<u32>((static_cast<u64>(x) * static_cast<u32>(reciprocal >> 32)) >> 32);
        return estimate + (x - estimate * by >= by);
    }
};

}  // namespace zenc
