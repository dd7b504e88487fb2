// Launchers of linear selections, and of multiples of a step that all ranks share. Each puts its kernels on
// the stream and waits for nothing.
#pragma once

#include <cstring>

#include "zenc/compress/sketch.h"
#include "zenc_host/compress/selection.h"

namespace zenc {

static const Kernel DRAW_UNITS("zenc_draw_units");
static const Kernel TAKE_UNITS("zenc_take_units", Typed::YES);
static const Kernel REMEMBER("zenc_remember", Typed::YES);
static const Kernel INSERT_IN_SKETCH("zenc_insert_in_sketch");
static const Kernel QUERY_SKETCH("zenc_query_sketch", Typed::YES);
static const Kernel QUANTISE_FIXED("zenc_quantise_fixed", Typed::YES);

// The bits of a float32 in a word.
inline i64 word_of(float value) {
    u32 bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}

inline void draw_units(Launches& launches, i64 n, i64 k, i64 key, i64* out) {
    launches.launch(DRAW_UNITS, Launches::blocks_for(static_cast<u64>(k)), 1, n, k, key, out);
}

// out [k, width] of the launches' dtype = the rows of `units`; what is left of them stays.
inline void take_units(Launches& launches, float* left, const i64* units, i64 k, i64 width, void* out,
                       float* velocity) {
    const u64 blocks = Launches::blocks_for(static_cast<u64>(k * width));
    launches.launch(TAKE_UNITS, blocks, 1, left, units, k, width, out, velocity);
}

inline void remember(Launches& launches, const void* result, i64 n, float beta, float* history) {
    launches.launch(REMEMBER, Launches::blocks_for(static_cast<u64>(n)), 1, result, n, word_of(beta),
                    history);
}

// *greatest becomes the greatest magnitude of values [n] of the launches' dtype.
inline void find_greatest(Launches& launches, const void* values, i64 n, u64* greatest) {
    launches.clear(greatest, sizeof(u64));
    launches.launch(RAISE_GREATEST, Launches::blocks_for(static_cast<u64>(n)), 1, values, n, greatest);
}

// Rows of a grid for the groups of a sketch.
inline u64 rows_for_groups(i64 n, i64 rows, i64 cells) {
    const u64 groups =
        SketchGroups(0, static_cast<u64>(n), static_cast<u32>(rows), static_cast<u64>(cells)).count;
    return groups < 65535 ? groups : 65535;
}

// out [rows, cells]: a sketch of values [n], float32.
inline void sketch(Launches& launches, const float* values, i64 n, i64 rows, i64 cells, i64 key, float* out) {
    launches.launch(INSERT_IN_SKETCH, 1, rows_for_groups(n, rows, cells), values, n, rows, cells, key, out);
}

inline void query_sketch(Launches& launches, const float* sketch, i64 n, i64 rows, i64 cells, i64 key,
                         void* out) {
    launches.launch(QUERY_SKETCH, 1, rows_for_groups(n, rows, cells), sketch, n, rows, cells, key, out);
}

// gradient [n] of the launches' dtype = multiples of 2^exponent of left [n], which becomes what is lost.
inline void quantise_fixed(Launches& launches, float* left, i64 n, i64 exponent, i64 levels, void* gradient) {
    const u64 blocks = Launches::blocks_for(static_cast<u64>(n));
    launches.launch(QUANTISE_FIXED, blocks, 1, left, n, exponent, levels, gradient);
}

}  // namespace zenc
