// Kernels of compression for GPUs: one unit for all mappings, since none of them depends on one.
#include "zenc_cuda/compress.h"

using zenc::i64;
using zenc::u8;

// The scales come before the integers, in a launch of their own; 16-bit codes have none.
#define ZENC_CODES(name, type)                                                                               \
    ZENC_KERNEL(zenc_scale_##name, (i64 code, i64 levels, i64 block, const type* values, i64 n, u8* out)) {  \
        zenc::scale_by(code, levels, block, values, n, out);                                                 \
    }                                                                                                        \
    ZENC_KERNEL(zenc_encode_##name, (i64 code, i64 levels, i64 bits, i64 block, i64 key, const type* values, \
                                     i64 n, u8* out, type* decoded, float* loss)) {                          \
        zenc::encode_by(code, levels, bits, block, key, values, n, out, decoded, loss);                      \
    }                                                                                                        \
    ZENC_KERNEL(zenc_decode_##name,                                                                          \
                (i64 code, i64 levels, i64 bits, i64 block, const u8* in, i64 n, type* values)) {            \
        zenc::decode_by(code, levels, bits, block, in, n, values);                                           \
    }

ZENC_CODES(f32, float)
ZENC_CODES(f16, zenc::f16)
ZENC_CODES(bf16, zenc::bf16)
