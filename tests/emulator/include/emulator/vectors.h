// The vector types of CUDA, with its alignments.
#pragma once

struct uint3 {
    unsigned x, y, z;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

#define EMULATOR_VECTORS(T, name, n)                            \
    struct alignas(2 * sizeof(T)) name##2 {                     \
        T x, y;                                                 \
    };                                                          \
    struct alignas(4 * sizeof(T) > 16 ? 16 : 4 * sizeof(T)) n { \
        T x, y, z, w;                                           \
    };                                                          \
    inline name##2 make_##name##2(T x, T y) {                   \
        return {x, y};                                          \
    }                                                           \
    inline n make_##n(T x, T y, T z, T w) {                     \
        return {x, y, z, w};                                    \
    }

EMULATOR_VECTORS(unsigned char, uchar, uchar4)
EMULATOR_VECTORS(unsigned short, ushort, ushort4)
EMULATOR_VECTORS(int, int, int4)
EMULATOR_VECTORS(unsigned, uint, uint4)
EMULATOR_VECTORS(long long, longlong, longlong4)
EMULATOR_VECTORS(unsigned long long, ulonglong, ulonglong4)
EMULATOR_VECTORS(float, float, float4)
EMULATOR_VECTORS(double, double, double4)

#undef EMULATOR_VECTORS
