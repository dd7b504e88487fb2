// Kernels of compression outside of calls: what a rank contributes of a tensor. One unit for all schemes.
#include <optional>

#include "zenc_host/compress/linear.h"

namespace zenc {

// A selection, and what it is launched by.
struct OpenSelection {
    Launches launches;
    std::optional<Selection> selection;
};

inline std::vector<Search> searches_of(const i64* parts, i64 n) {
    std::vector<Search> searches;
    for (i64 i = 0; i < n; ++i)
        searches.push_back(search_for(static_cast<u64>(parts[3 * i]), static_cast<u64>(parts[3 * i + 1]),
                                      static_cast<u64>(parts[3 * i + 2])));
    return searches;
}

}  // namespace zenc

using zenc::i64;
using zenc::OpenSelection;
using zenc::u64;

extern "C" {

// Launches that are not part of a selection, each waited for.
ZENC_EXPORT zenc::Launches* zenc_open_launches(void* kernels, void* stream, i64 dtype, char* error,
                                               u64 size) {
    auto& loaded = *static_cast<zenc::Kernels*>(kernels);
    zenc::api.cuCtxSetCurrent(loaded.context);
    return new zenc::Launches(loaded, static_cast<zenc::CUstream>(stream), dtype,
                              zenc::ErrorText{error, size});
}

// Copies some bytes from the device. Returns 1, or 0 after a failure; the launches have ended then.
ZENC_EXPORT i64 zenc_close_launches(zenc::Launches* launches, i64 deadline, void* host, const void* memory,
                                    u64 bytes) {
    const zenc::BesideCaptures beside;
    launches->fetch(host, memory, bytes, deadline);
    const i64 ok = launches->ok();
    delete launches;
    return ok;
}

ZENC_EXPORT void zenc_draw_units(zenc::Launches* launches, i64 n, i64 k, i64 key, i64* out) {
    zenc::draw_units(*launches, n, k, key, out);
}

ZENC_EXPORT void zenc_take_units(zenc::Launches* launches, float* left, const i64* units, i64 k, i64 width,
                                 void* out, float* velocity) {
    zenc::take_units(*launches, left, units, k, width, out, velocity);
}

ZENC_EXPORT void zenc_remember(zenc::Launches* launches, const void* result, i64 n, double beta,
                               float* history) {
    zenc::remember(*launches, result, n, static_cast<float>(beta), history);
}

ZENC_EXPORT void zenc_find_greatest(zenc::Launches* launches, const void* values, i64 n, u64* greatest) {
    zenc::find_greatest(*launches, values, n, greatest);
}

ZENC_EXPORT void zenc_sketch(zenc::Launches* launches, const float* values, i64 n, i64 rows, i64 cells,
                             i64 key, float* out) {
    zenc::sketch(*launches, values, n, rows, cells, key, out);
}

ZENC_EXPORT void zenc_query_sketch(zenc::Launches* launches, const float* sketch, i64 n, i64 rows, i64 cells,
                                   i64 key, void* out) {
    zenc::query_sketch(*launches, sketch, n, rows, cells, key, out);
}

ZENC_EXPORT void zenc_quantise_fixed(zenc::Launches* launches, float* left, i64 n, i64 exponent, i64 levels,
                                     void* gradient) {
    zenc::quantise_fixed(*launches, left, n, exponent, levels, gradient);
}

// The bytes of device memory that a selection works in.
ZENC_EXPORT u64 zenc_selection_bytes(i64 units, i64 parts) {
    return zenc::SelectionWork::bytes(static_cast<u64>(units), static_cast<u64>(parts));
}

// Begins a selection on a stream, in `work`. `marks` may be null; `error`, of `size` bytes, lives as
// long as what is returned, and says why the first of the functions failed that did.
ZENC_EXPORT OpenSelection* zenc_open_selection(void* kernels, void* stream, i64 dtype, i64 units, i64 width,
                                               i64 parts, void* work, void* marks, char* error, u64 size) {
    auto& loaded = *static_cast<zenc::Kernels*>(kernels);
    zenc::api.cuCtxSetCurrent(loaded.context);
    auto* const made = new OpenSelection{
        {loaded, static_cast<zenc::CUstream>(stream), dtype, zenc::ErrorText{error, size}}, {}};
    made->selection.emplace(made->launches, static_cast<u64>(units), static_cast<u64>(width),
                            static_cast<u64>(parts), work, static_cast<zenc::u8*>(marks));
    return made;
}

// What was found: 5 words, of which the first two are doubles. Returns 1, or 0 after a failure; the selection
// has ended then.
ZENC_EXPORT i64 zenc_close_selection(OpenSelection* open, i64 deadline, zenc::Selected* found) {
    const zenc::BesideCaptures beside;
    *found = open->selection->fetch(deadline);
    const i64 ok = open->launches.ok();
    delete open;
    return ok;
}

ZENC_EXPORT void zenc_add(OpenSelection* open, const void* gradient, const float* residual, float* left,
                          const float* velocity, double m, float* velocity_out, u64* bits) {
    open->selection->add(gradient, residual, left, velocity, static_cast<float>(m), velocity_out, bits);
}

// `parts`: first, units and k of each of n; none: no search begins.
ZENC_EXPORT void zenc_accumulate(OpenSelection* open, const i64* parts, i64 n) {
    open->selection->accumulate(zenc::searches_of(parts, n));
}

ZENC_EXPORT void zenc_accumulate_from(OpenSelection* open, i64 magnitude, void* gradient) {
    open->selection->accumulate_from(static_cast<u64>(magnitude), gradient);
}

ZENC_EXPORT void zenc_accumulate_sampled(OpenSelection* open, i64 k, i64 drawn, i64 key, float* sample,
                                         void* gradient) {
    open->selection->accumulate_sampled(static_cast<u64>(k), static_cast<u64>(drawn), static_cast<u64>(key),
                                        sample, gradient);
}

ZENC_EXPORT void zenc_look_at(OpenSelection* open, const void* values, i64 dtype, float* magnitudes) {
    open->selection->look_at(values, dtype, magnitudes);
}

ZENC_EXPORT void zenc_take_top(OpenSelection* open, const i64* parts, i64 n, i64 begun, const i64* order,
                               void* gradient) {
    open->selection->take_top(zenc::searches_of(parts, n), begun != 0, order, gradient);
}

ZENC_EXPORT void zenc_take_from(OpenSelection* open, i64 magnitude, void* gradient) {
    open->selection->take_from(static_cast<u64>(magnitude), gradient);
}

ZENC_EXPORT void zenc_take_listed(OpenSelection* open, void* gradient) {
    open->selection->take_known(gradient);
}

ZENC_EXPORT void zenc_take_all(OpenSelection* open, void* gradient) {
    open->selection->take_all(gradient);
}

ZENC_EXPORT void zenc_take_sampled(OpenSelection* open, i64 k, i64 drawn, i64 key, float* sample,
                                   void* gradient) {
    open->selection->take_sampled(static_cast<u64>(k), static_cast<u64>(drawn), static_cast<u64>(key), sample,
                                  gradient);
}

ZENC_EXPORT void zenc_take_bisected(OpenSelection* open, i64 k, i64 steps, void* gradient) {
    open->selection->take_bisected(static_cast<u64>(k), steps, gradient);
}

ZENC_EXPORT void zenc_take_random(OpenSelection* open, i64 key, i64 chance, void* gradient) {
    open->selection->take_random(static_cast<u64>(key), static_cast<u64>(chance), gradient);
}

ZENC_EXPORT void zenc_take_of_blocks(OpenSelection* open, i64 block, i64 k, void* gradient) {
    open->selection->take_of_blocks(static_cast<u64>(block), static_cast<u64>(k), gradient);
}

ZENC_EXPORT void zenc_keep_velocities(OpenSelection* open) {
    open->selection->keep_velocities();
}

ZENC_EXPORT void zenc_keep_threshold(OpenSelection* open) {
    open->selection->keep_threshold();
}

ZENC_EXPORT void zenc_take_marked(OpenSelection* open, void* gradient) {
    open->selection->take_marked(gradient);
}
}
