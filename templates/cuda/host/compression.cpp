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

// Launches that are not part of a selection, each waited for.
Launches* open_launches(void* kernels, void* stream, i64 dtype, char* error, u64 size) {
    auto& loaded = *static_cast<Kernels*>(kernels);
    api.cuCtxSetCurrent(loaded.context);
    return new Launches(loaded, static_cast<CUstream>(stream), dtype, ErrorText{error, size});
}

// Copies some bytes from the device. Returns 1, or 0 after a failure; the launches have ended then.
i64 close_launches(Launches* launches, i64 deadline, void* host, const void* memory, u64 bytes) {
    const BesideCaptures beside;
    launches->fetch(host, memory, bytes, deadline);
    const i64 ok = launches->ok();
    delete launches;
    return ok;
}

// The bytes of device memory that a selection works in.
u64 selection_bytes(i64 units, i64 parts) {
    return SelectionWork::bytes(static_cast<u64>(units), static_cast<u64>(parts));
}

// Begins a selection on a stream, in `work`. `marks` may be null; `error`, of `size` bytes, lives as
// long as what is returned, and says why the first of the functions failed that did.
OpenSelection* open_selection(void* kernels, void* stream, i64 dtype, i64 units, i64 width, i64 parts,
                              void* work, void* marks, char* error, u64 size) {
    auto& loaded = *static_cast<Kernels*>(kernels);
    api.cuCtxSetCurrent(loaded.context);
    auto* const made =
        new OpenSelection{{loaded, static_cast<CUstream>(stream), dtype, ErrorText{error, size}}, {}};
    made->selection.emplace(made->launches, static_cast<u64>(units), static_cast<u64>(width),
                            static_cast<u64>(parts), work, static_cast<u8*>(marks));
    return made;
}

// What was found: 5 words, of which the first two are doubles. Returns 1, or 0 after a failure; the selection
// has ended then.
i64 close_selection(OpenSelection* open, i64 deadline, Selected* found) {
    const BesideCaptures beside;
    *found = open->selection->fetch(deadline);
    const i64 ok = open->launches.ok();
    delete open;
    return ok;
}

// A method of a selection as a function of what was opened.
template <auto method>
struct OfSelection;

template <class... Arguments, void (Selection::*method)(Arguments...)>
struct OfSelection<method> {
    static void call(OpenSelection* open, Arguments... arguments) {
        ((*open->selection).*method)(arguments...);
    }
};

// `parts`: first, units and k of each of n; none: no search begins.
void accumulate(OpenSelection* open, const i64* parts, i64 n) {
    open->selection->accumulate(searches_of(parts, n));
}

void take_top(OpenSelection* open, const i64* parts, i64 n, bool begun, const i64* order, void* gradient) {
    open->selection->take_top(searches_of(parts, n), begun, order, gradient);
}

void take_listed(OpenSelection* open, void* gradient) {
    open->selection->take_known(gradient);
}

}  // namespace zenc

using zenc::entry, zenc::OfSelection, zenc::Selection;

const zenc::EntryPoint zenc_entry_points[] = {
    ZENC_ENTRIES_OF_KERNELS,
    entry("open_launches", zenc::open_launches),
    entry("close_launches", zenc::close_launches),
    entry("draw_units", zenc::draw_units),
    entry("take_units", zenc::take_units),
    entry("remember", zenc::remember),
    entry("find_greatest", zenc::find_greatest),
    entry("sketch", zenc::sketch),
    entry("query_sketch", zenc::query_sketch),
    entry("quantise_fixed", zenc::quantise_fixed),
    entry("selection_bytes", zenc::selection_bytes),
    entry("open_selection", zenc::open_selection),
    entry("close_selection", zenc::close_selection),
    entry("accumulate", zenc::accumulate),
    entry("take_top", zenc::take_top),
    entry("take_listed", zenc::take_listed),
    entry("add", OfSelection<&Selection::add>::call),
    entry("accumulate_from", OfSelection<&Selection::accumulate_from>::call),
    entry("accumulate_sampled", OfSelection<&Selection::accumulate_sampled>::call),
    entry("look_at", OfSelection<&Selection::look_at>::call),
    entry("take_from", OfSelection<&Selection::take_from>::call),
    entry("take_all", OfSelection<&Selection::take_all>::call),
    entry("take_sampled", OfSelection<&Selection::take_sampled>::call),
    entry("take_bisected", OfSelection<&Selection::take_bisected>::call),
    entry("take_random", OfSelection<&Selection::take_random>::call),
    entry("take_of_blocks", OfSelection<&Selection::take_of_blocks>::call),
    entry("keep_velocities", OfSelection<&Selection::keep_velocities>::call),
    entry("keep_threshold", OfSelection<&Selection::keep_threshold>::call),
    entry("take_marked", OfSelection<&Selection::take_marked>::call),
    {},
};
