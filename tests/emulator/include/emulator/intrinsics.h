// Single-thread intrinsics of CUDA. Those of warps are in warp.h, those of memory in atomics.h.
#pragma once

#include "emulator/engine.h"

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz(static_cast<unsigned>(x)) : 32;
}
inline int __clzll(long long x) {
    return x ? __builtin_clzll(static_cast<unsigned long long>(x)) : 64;
}

inline unsigned long long __brevll(unsigned long long x) {
    unsigned long long reversed = 0;
    for (int bit = 0; bit < 64; bit++) reversed |= (x >> bit & 1) << (63 - bit);
    return reversed;
}
inline unsigned __brev(unsigned x) {
    return static_cast<unsigned>(__brevll(x) >> 32);
}

__extension__ typedef unsigned __int128 emulator_u128;
__extension__ typedef __int128 emulator_i128;

inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return static_cast<unsigned long long>(static_cast<emulator_u128>(a) * b >> 64);
}
inline long long __mul64hi(long long a, long long b) {
    return static_cast<long long>(static_cast<emulator_i128>(a) * b >> 64);
}

// Shift amounts are taken modulo 32, as the hardware does.
inline unsigned __funnelshift_l(unsigned low, unsigned high, unsigned shift) {
    const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both << (shift & 31) >> 32);
}
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned shift) {
    const unsigned long long both = static_cast<unsigned long long>(high) << 32 | low;
    return static_cast<unsigned>(both >> (shift & 31));
}

#define EMULATOR_BIT_CAST(name, To, From)            \
    inline To name(From from) {                      \
        To to;                                       \
        static_assert(sizeof to == sizeof from, ""); \
        __builtin_memcpy(&to, &from, sizeof to);     \
        return to;                                   \
    }

EMULATOR_BIT_CAST(__float_as_int, int, float)
EMULATOR_BIT_CAST(__float_as_uint, unsigned, float)
EMULATOR_BIT_CAST(__int_as_float, float, int)
EMULATOR_BIT_CAST(__uint_as_float, float, unsigned)
EMULATOR_BIT_CAST(__double_as_longlong, long long, double)
EMULATOR_BIT_CAST(__longlong_as_double, double, long long)

#undef EMULATOR_BIT_CAST

// Rounded on their own, never fused. Kernels are compiled with -ffp-contract=off here.
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fsub_rn(float a, float b) {
    return a - b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline double __dadd_rn(double a, double b) {
    return a + b;
}
inline double __dsub_rn(double a, double b) {
    return a - b;
}
inline double __dmul_rn(double a, double b) {
    return a * b;
}
inline double __ddiv_rn(double a, double b) {
    return a / b;
}

#define EMULATOR_MIN_MAX(T)            \
    inline constexpr T min(T a, T b) { \
        return b < a ? b : a;          \
    }                                  \
    inline constexpr T max(T a, T b) { \
        return a < b ? b : a;          \
    }

EMULATOR_MIN_MAX(int)
EMULATOR_MIN_MAX(unsigned)
EMULATOR_MIN_MAX(long)
EMULATOR_MIN_MAX(unsigned long)
EMULATOR_MIN_MAX(long long)
EMULATOR_MIN_MAX(unsigned long long)

#undef EMULATOR_MIN_MAX

[[noreturn]] inline void __trap(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    emulator_trap(file, line);
}
