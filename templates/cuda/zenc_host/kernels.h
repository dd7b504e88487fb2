// The kernels of loaded modules, by objects that stand next to their launches, and what a launch passes.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "zenc/segment.h"
#include "zenc_host/driver.h"

namespace zenc {

enum class Typed { NO, YES, BY_BITS };

// A kernel by its name. A typed one is a family of DTYPES kernels, name_f32, name_f64 ..., or by the bits of
// values name_16, name_32, name_64; the call's dtype chooses one. If it `ends` in an epilogue, that and later
// ones can follow. Each kernel is one static object: `static const Kernel MERGE("zenc_merge",
// Typed::BY_BITS);`
class Kernel {
public:
    explicit Kernel(const char* name, Typed typed = Typed::NO, Ending ends = Ending::NONE)
        : name(name), typed(typed), ends(ends), number(all().size()) {
        all().push_back(this);
    }
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    // All kernels of this library: hidden, or other libraries in the process would share the list.
    __attribute__((visibility("hidden"))) static std::vector<const Kernel*>& all() {
        static std::vector<const Kernel*> kernels;
        return kernels;
    }

    const char* const name;
    const Typed typed;
    const Ending ends;
    const u64 number;
};

template <class Entry>
inline u64 words_of_table(const std::vector<Entry>& table) {
    return table.size() * sizeof(Entry) / 8;
}

template <class Entry>
inline i64 number_of(const std::vector<Entry>& table) {
    return static_cast<i64>(table.size());
}

// Blocks of THREADS threads for n threads: at least 1, at most `most`.
inline u64 blocks_up_to(u64 most, u64 n) {
    return std::clamp<u64>(ceil_divide(n, THREADS), 1, most);
}

// Rows of a grid for n segments; if there are fewer rows, kernels stride.
inline u64 rows_for(u64 n) {
    return std::min<u64>(n, 65535);
}

constexpr u64 MOST_ARGUMENTS = 16, MOST_WORDS = 64;  // of a launch

// A launch with its tables, and its arguments, words or structures of words; none without a function.
struct Launch {
    CUfunction function = nullptr;
    const char* name = nullptr;
    unsigned blocks = 0, rows = 0;
    u64 arguments = 0, words = 0;  // how many
    u64 given[MOST_WORDS];
    void* parameters[MOST_ARGUMENTS + 1];  // where each argument's words begin
    Tables tables;
    u64 used = 1;      // words of the tables
    Ending next = {};  // what the epilogue may have next
    Epilogue epilogue = {};

    void begin(const Kernel& kernel, u64 blocks_, u64 rows_) {
        name = kernel.name;
        blocks = static_cast<unsigned>(blocks_);
        rows = static_cast<unsigned>(rows_);
        arguments = words = 0;
        used = 1;
        next = kernel.ends;
        epilogue = {};
    }

    template <class Argument>
    void pass(const Argument& argument) {
        static_assert(sizeof(Argument) % 8 == 0, "parameters are made of words");
        parameters[arguments++] = given + words;
        std::memcpy(given + words, &argument, sizeof argument);
        words += sizeof argument / 8;
    }

    // The offset of an equal table among those that are there already; 0 if there is none.
    template <class Entry>
    u64 offset_of(const std::vector<Entry>& table) const {
        const u64 n = words_of_table(table);
        for (u64 at = 1; n != 0 && at + n <= used; ++at)
            if (std::memcmp(tables.words + at, table.data(), 8 * n) == 0) return 8 * at;
        return 0;
    }

    // Adds n entries, for which there is room, and returns their offset.
    template <class Entry>
    u64 place(const Entry* table, u64 n) {
        if (n != 0) std::memcpy(tables.words + used, table, n * sizeof(Entry));
        const u64 offset = 8 * used;
        used += n * sizeof(Entry) / 8;
        return offset;
    }
};

// Compiles and adds the module that has a kernel of this name: 1, or 0 if it can't.
using Fetch = i64 (*)(void* user, const char* name);

// The functions of modules in one context; null for functions that none of the modules has.
struct Kernels {
    CUcontext context = nullptr;
    std::vector<CUmodule> modules;
    std::vector<std::array<CUfunction, DTYPES>> functions{Kernel::all().size()};
    Fetch fetch = nullptr;
    bool has_tables = false;  // they read those of a partition

    // Returns a kernel's function, from the modules that are loaded, or from one that this call's thread
    // fetches; null if there is none.
    CUfunction of(const Kernel& kernel, i64 dtype) {
        const i64 which = kernel.typed != Typed::NO ? dtype : 0;
        CUfunction& function = functions[kernel.number][static_cast<u64>(which)];
        if (function == nullptr && fetch != nullptr) fetch(this, full_name(kernel, which).data());
        return function;
    }

    bool add(const void* image, ErrorText error) {
        CUmodule module = nullptr;
        if (const CUresult result = api.cuModuleLoadData(&module, image))
            return refuse(error, "cuModuleLoadData failed: %s", name_of(result));
        modules.push_back(module);
        for (const Kernel* kernel : Kernel::all()) find(*kernel);
        return true;
    }

private:
    static std::array<char, 128> full_name(const Kernel& kernel, i64 dtype) {
        std::array<char, 128> name;
        if (kernel.typed == Typed::BY_BITS)
            std::snprintf(name.data(), name.size(), "%s_%lld", kernel.name, 8 * DTYPE_BYTES[dtype]);
        else if (kernel.typed == Typed::YES)
            std::snprintf(name.data(), name.size(), "%s_%s", kernel.name, DTYPE_NAMES[dtype]);
        else
            std::snprintf(name.data(), name.size(), "%s", kernel.name);
        return name;
    }

    // Finds the functions of a kernel in the newest module.
    void find(const Kernel& kernel) {
        for (i64 dtype = 0; dtype < (kernel.typed == Typed::NO ? 1 : DTYPES); ++dtype) {
            CUfunction found = nullptr;
            if (api.cuModuleGetFunction(&found, modules.back(), full_name(kernel, dtype).data()) ==
                CUDA_SUCCESS)
                functions[kernel.number][static_cast<u64>(dtype)] = found;
        }
    }
};

extern "C" {

// Loads a compiled module (a cubin) into the current context. Unless `fetch` is null, it is called with what
// this returns to add a kernel that a call misses. With `tables`, kernels read the tables of a partition.
// Returns what a Call takes as `kernels`, or null with the reason in `error`.
ZENC_EXPORT void* zenc_load_kernels(const void* image, Fetch fetch, i64 tables, char* error, u64 size) {
    const BesideCaptures beside;
    auto* const kernels = new Kernels;
    kernels->fetch = fetch;
    kernels->has_tables = tables != 0;
    api.cuCtxGetCurrent(&kernels->context);
    if (kernels->context == nullptr)
        refuse({error, size}, "no CUDA context is current in this thread");
    else if (kernels->add(image, {error, size}))
        return kernels;
    delete kernels;
    return nullptr;
}

// Loads one more module into the current context. Returns 1, or 0 with the reason in `error`.
ZENC_EXPORT i64 zenc_add_kernels(void* kernels, const void* image, char* error, u64 size) {
    const BesideCaptures beside;
    return static_cast<Kernels*>(kernels)->add(image, {error, size});
}

// Unloads kernels. No call may be under way.
ZENC_EXPORT void zenc_unload_kernels(void* kernels) {
    const BesideCaptures beside;
    auto* const loaded = static_cast<Kernels*>(kernels);
    api.cuCtxSetCurrent(loaded->context);
    for (const CUmodule module : loaded->modules) api.cuModuleUnload(module);
    delete loaded;
}
}

#define ZENC_ENTRIES_OF_KERNELS                                                                 \
    zenc::entry("bind", zenc::zenc_bind), zenc::entry("load_kernels", zenc::zenc_load_kernels), \
        zenc::entry("add_kernels", zenc::zenc_add_kernels),                                     \
        zenc::entry("unload_kernels", zenc::zenc_unload_kernels)

}  // namespace zenc
