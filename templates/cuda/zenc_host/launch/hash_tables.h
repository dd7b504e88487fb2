// The tables of hierarchical hashing, made on the host: once for a number of units and parts, before the
// caller uploads them.
#pragma once

#include "zenc/hash.h"
#include "zenc_host/driver.h"

extern "C" {

// The 64-bit words of the tables, or OUT_OF_RANGE for more units than can be hashed.
ZENC_EXPORT zenc::i64 zenc_table_words(zenc::i64 units, zenc::i64 parts) {
    if (static_cast<zenc::u64>(units) > zenc::MOST_HASHED_UNITS) return zenc::OUT_OF_RANGE;
    return static_cast<zenc::i64>(
        zenc::HashTables::words(static_cast<zenc::u64>(units), static_cast<zenc::u64>(parts)));
}

// They depend on h0 alone, which is the same for any number of further functions.
ZENC_EXPORT void zenc_build_tables(zenc::u64 seed, zenc::i64 units, zenc::i64 parts, zenc::u64* out) {
    const auto u = static_cast<zenc::u64>(units), p = static_cast<zenc::u64>(parts);
    zenc::HashTables(u, p, out).build(zenc::HashFamily<1>(seed), u, p);
}
}
