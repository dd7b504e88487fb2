// Kernels of updates for CPUs: one unit for all mappings, since none of them depends on one.
#include "zenc_cpu/update/update.h"

#include "zenc/constants.h"

using zenc::i64;
using zenc::u16;
using zenc::u32;
using zenc::u64;
using zenc::u8;

#define ZENC_OF_BITS(bits)                                                                            \
    i64 zenc_encode_update_##bits(const u##bits* old, const u##bits* now, i64 n, u8* out, i64 room) { \
        return zenc::encode_update(old, now, static_cast<u64>(n), out, static_cast<u64>(room));       \
    }                                                                                                 \
    i64 zenc_apply_update_##bits(const u8* update, i64 bytes, u##bits* values, i64 n) {               \
        return zenc::apply_update(update, static_cast<u64>(bytes), values, static_cast<u64>(n));      \
    }

extern "C" {

i64 zenc_checksum(const u8* data, i64 bytes) {
    return static_cast<i64>(zenc::checksum(data, static_cast<u64>(bytes)));
}

i64 zenc_read_beyond() {
    return zenc::READ_BEYOND;
}

ZENC_OF_BITS(16)
ZENC_OF_BITS(32)
ZENC_OF_BITS(64)

}  // extern "C"
