// The kernels of a loaded unit, by objects that stand next to their launchers.
#pragma once

#include <vector>

#include "zenc_host/driver/bind.h"

namespace zenc {

constexpr i64 MOST_KERNELS = 64;

enum class Typed { NO, YES };

class Kernel;
static i64 number_of_kernels = 0;
static const Kernel* newest_kernel = nullptr;

// A kernel by its name. A typed one is a family of DTYPES kernels: name_f32, name_f64 ...; the call's dtype
// chooses. Each is one static object: `static const Kernel COPY_KEPT("zenc_copy_kept", Typed::YES);`
class Kernel {
public:
    explicit Kernel(const char* name, Typed typed = Typed::NO)
        : name(name), typed(typed == Typed::YES), number(number_of_kernels++), before(newest_kernel) {
        newest_kernel = this;
    }
    Kernel(const Kernel&) = delete;
    Kernel& operator=(const Kernel&) = delete;

    const char* const name;
    const bool typed;
    const i64 number;
    const Kernel* const before;
};

// Compiles and adds the module that has a kernel of this name: 1, or 0 if it can't.
using Fetch = i64 (*)(void* user, const char* name);

// The functions of some modules in one context; null for what none of them has.
struct Kernels {
    CUcontext context = nullptr;
    std::vector<CUmodule> modules;
    CUfunction functions[MOST_KERNELS][DTYPES] = {};
    Fetch fetch = nullptr;
    void* user = nullptr;

    // Of the modules that there are, or of one that is fetched; null if there is none.
    CUfunction of(const Kernel& kernel, i64 dtype);
};

inline void name_kernel(const Kernel& kernel, i64 dtype, char (&name)[128]) {
    std::snprintf(name, sizeof name, kernel.typed ? "%s_%s" : "%s", kernel.name, DTYPE_NAMES[dtype]);
}

inline CUfunction Kernels::of(const Kernel& kernel, i64 dtype) {
    CUfunction& function = functions[kernel.number][kernel.typed ? dtype : 0];
    if (function == nullptr && fetch != nullptr) {
        char name[128];
        name_kernel(kernel, dtype, name);
        fetch(user, name);
    }
    return function;
}

inline void find_functions(Kernels& kernels) {
    for (const Kernel* kernel = newest_kernel; kernel != nullptr; kernel = kernel->before) {
        for (i64 dtype = 0; dtype < (kernel->typed ? DTYPES : 1); ++dtype) {
            char name[128];
            name_kernel(*kernel, dtype, name);
            CUfunction& function = kernels.functions[kernel->number][dtype];
            if (function != nullptr) continue;
            if (api.cuModuleGetFunction(&function, kernels.modules.back(), name) != CUDA_SUCCESS)
                function = nullptr;
        }
    }
}

inline bool add_kernels(const void* image, Kernels& kernels, ErrorText error) {
    CUmodule module = nullptr;
    if (const CUresult result = api.cuModuleLoadData(&module, image))
        return refuse(error, "cuModuleLoadData failed: %s", name_of(result));
    kernels.modules.push_back(module);
    find_functions(kernels);
    return true;
}

inline bool load_kernels(const void* image, Kernels& kernels, ErrorText error) {
    if (number_of_kernels > MOST_KERNELS) return refuse(error, "there are too many kernels");
    api.cuCtxGetCurrent(&kernels.context);
    if (kernels.context == nullptr) return refuse(error, "no CUDA context is current in this thread");
    return add_kernels(image, kernels, error);
}

}  // namespace zenc

extern "C" {

// Loads a compiled unit (a cubin) into the current context. Returns what a Call takes as `kernels`, or null
// with the reason in `error`.
ZENC_EXPORT void* zenc_load_kernels(const void* image, char* error, zenc::u64 size) {
    const zenc::BesideCaptures beside;
    auto* const kernels = new zenc::Kernels;
    if (zenc::load_kernels(image, *kernels, {error, size})) return kernels;
    delete kernels;
    return nullptr;
}

// From here on a kernel that is missed is fetched, by the thread that makes a call.
ZENC_EXPORT void zenc_fetch_kernels(void* kernels, zenc::Fetch fetch, void* user) {
    auto* const loaded = static_cast<zenc::Kernels*>(kernels);
    loaded->fetch = fetch;
    loaded->user = user;
}

// Loads one more compiled unit into the current context. Returns 1, or 0 with the reason in `error`.
ZENC_EXPORT zenc::i64 zenc_add_kernels(void* kernels, const void* image, char* error, zenc::u64 size) {
    const zenc::BesideCaptures beside;
    return zenc::add_kernels(image, *static_cast<zenc::Kernels*>(kernels), {error, size});
}

// No call may be under way.
ZENC_EXPORT void zenc_unload_kernels(void* kernels) {
    const zenc::BesideCaptures beside;
    auto* const loaded = static_cast<zenc::Kernels*>(kernels);
    zenc::api.cuCtxSetCurrent(loaded->context);
    for (const zenc::CUmodule module : loaded->modules) zenc::api.cuModuleUnload(module);
    delete loaded;
}
}
