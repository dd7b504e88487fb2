// Kernels of updates for CPUs: one unit for all mappings, since none of them depends on one.
#include "zenc_cpu/update/update.h"

#include "zenc/entry_points.h"

using zenc::entry, zenc::i64, zenc::u16, zenc::u32, zenc::u64;

static i64 read_beyond() {
    return zenc::READ_BEYOND;
}

#define ZENC_OF_BITS(bits)                                       \
    entry("encode_update_" #bits, zenc::encode_update<u##bits>), \
        entry("apply_update_" #bits, zenc::apply_update<u##bits>)

const zenc::EntryPoint zenc_entry_points[] = {
    entry("checksum", zenc::checksum),
    entry("read_beyond", read_beyond),
    ZENC_OF_BITS(16),
    ZENC_OF_BITS(32),
    ZENC_OF_BITS(64),
    {},
};
