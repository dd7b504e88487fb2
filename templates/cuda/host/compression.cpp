// Kernels of compression outside of calls: what a rank contributes of a tensor. One unit for all schemes.
#include "zenc/compress/sketch.h"
#include "zenc_host/compress/selection.h"

namespace zenc {

static const Kernel DRAW_UNITS("zenc_draw_units");
static const Kernel TAKE_UNITS("zenc_take_units", Typed::YES);
static const Kernel REMEMBER("zenc_remember", Typed::YES);
static const Kernel INSERT_IN_SKETCH("zenc_insert_in_sketch");
static const Kernel TRANSFORM("zenc_transform");
static const Kernel QUERY_SKETCH("zenc_query_sketch", Typed::YES);
static const Kernel QUANTISE_FIXED("zenc_quantise_fixed", Typed::YES);

// Launches that are not part of a selection: those of linear ones, and multiples of a step that all ranks
// share.
Launches* open_launches(void* kernels, void* stream, i64 dtype, char* error, u64 size) {
    return new Launches(kernels, stream, dtype, error, size);
}

// Copies some bytes from the device. Returns 1, or 0 after a failure; the launches have ended then.
i64 close_launches(Launches* launches, i64 deadline, void* host, const void* memory, u64 bytes) {
    const BesideCaptures beside;
    launches->fetch(host, memory, bytes, deadline);
    const i64 ok = launches->ok();
    delete launches;
    return ok;
}

void draw_units(Launches& on, i64 n, i64 k, i64 key, i64* out) {
    on.launch_for(k, DRAW_UNITS, n, k, key, out);
}

// out [k, width] of the launches' dtype = the rows of `units`; what is left of them stays.
void take_units(Launches& on, float* left, const i64* units, i64 k, i64 width, void* out, float* velocity) {
    on.launch_for(k * width, TAKE_UNITS, left, units, k, width, out, velocity);
}

void remember(Launches& on, const void* result, i64 n, float beta, float* history) {
    on.launch_for(n, REMEMBER, result, n, static_cast<i64>(bits_of(beta)), history);
}

// *greatest becomes the greatest magnitude of values [n] of the launches' dtype.
void find_greatest(Launches& on, const void* values, i64 n, u64* greatest) {
    on.clear(greatest, sizeof(u64));
    on.launch_for(n, RAISE_GREATEST, values, n, greatest);
}

// Rows of a grid for the groups of a sketch.
inline u64 rows_for_groups(i64 n, i64 rows, i64 cells) {
    return rows_for(
        SketchGroups(0, static_cast<u64>(n), static_cast<u32>(rows), static_cast<u64>(cells)).count);
}

// out [rows, cells]: a sketch of values [n], float32.
void sketch(Launches& on, const float* values, i64 n, i64 rows, i64 cells, i64 key, float* out) {
    on.launch(INSERT_IN_SKETCH, 1, rows_for_groups(n, rows, cells), values, n, rows, cells, key, out);
}

void query_sketch(Launches& on, const float* of, i64 n, i64 rows, i64 cells, i64 key, void* out) {
    on.launch(QUERY_SKETCH, 1, rows_for_groups(n, rows, cells), of, n, rows, cells, key, out);
}

// Each chunk of values [n], float32, becomes its product with matrix [chunk, chunk].
void transform(Launches& on, float* values, i64 n, i64 chunk, const float* matrix) {
    on.launch(TRANSFORM, 1, rows_for(static_cast<u64>(n / chunk)), values, n, chunk, matrix);
}

// gradient [n] of the launches' dtype = multiples of 2^exponent of left [n], which becomes what is lost.
void quantise_fixed(Launches& on, float* left, i64 n, i64 exponent, i64 levels, void* gradient) {
    on.launch_for(n, QUANTISE_FIXED, left, n, exponent, levels, gradient);
}

// Begins a selection on a stream, in `work`. `marks` may be null; `error`, of `size` bytes, lives as
// long as what is returned, and says why the first of the functions failed that did.
Selection* open_selection(void* kernels, void* stream, i64 dtype, i64 units, i64 width, i64 parts, void* work,
                          void* marks, char* error, u64 size) {
    return new Selection({kernels, stream, dtype, error, size}, static_cast<u64>(units),
                         static_cast<u64>(width), static_cast<u64>(parts), work, static_cast<u8*>(marks));
}

// Fills in `found`, and ends a selection. Returns 0 after a failure: memory that the device may use stays.
i64 close_selection(Selection* open, i64 deadline, Selected* found) {
    const BesideCaptures beside;
    const i64 ok = open->fetch(deadline, *found);
    if (ok) delete open;
    return ok;
}

}  // namespace zenc

#define ZENC_FUNCTIONS(X)                                                                             \
    X(open_launches), X(close_launches), X(draw_units), X(take_units), X(remember), X(find_greatest), \
        X(sketch), X(query_sketch), X(quantise_fixed), X(transform), X(open_selection), X(close_selection)
#define ZENC_STEPS(X)                                                                                        \
    X(add), X(accumulate), X(accumulate_from), X(accumulate_sampled), X(look_at), X(take_top), X(take_from), \
        X(take_all), X(take_sampled), X(take_bisected), X(take_random), X(take_of_blocks), X(take_listed),   \
        X(keep_velocities), X(keep_threshold), X(take_marked)
#define ZENC_FUNCTION(name) zenc::entry(#name, zenc::name)
#define ZENC_STEP(name) zenc::entry(#name, zenc::Method<&zenc::Selection::name>::call)

const zenc::EntryPoint zenc_entry_points[] = {ZENC_ENTRIES_OF_KERNELS,
                                              ZENC_FUNCTIONS(ZENC_FUNCTION),
                                              ZENC_STEPS(ZENC_STEP),
                                              zenc::entry("selection_bytes", zenc::SelectionWork::bytes),
                                              {}};
