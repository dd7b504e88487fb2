// The kernels of a loaded unit, by objects that stand next to their launchers.
#pragma once

#include "zenc_host/driver/bind.h"
#include "zenc_host/driver/capture.h"

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

// The functions of one module in one context; null for what the module does not have.
struct Kernels {
    CUcontext context = nullptr;
    CUmodule module = nullptr;
    CUfunction functions[MOST_KERNELS][DTYPES] = {};

    CUfunction of(const Kernel& kernel, i64 dtype) const {
        return functions[kernel.number][kernel.typed ? dtype : 0];
    }
};

inline void find_functions(Kernels& kernels) {
    for (const Kernel* kernel = newest_kernel; kernel != nullptr; kernel = kernel->before) {
        for (i64 dtype = 0; dtype < (kernel->typed ? DTYPES : 1); ++dtype) {
            char name[128];
            std::snprintf(name, sizeof name, kernel->typed ? "%s_%s" : "%s", kernel->name,
                          DTYPE_NAMES[dtype]);
            CUfunction& function = kernels.functions[kernel->number][dtype];
            if (api.cuModuleGetFunction(&function, kernels.module, name) != CUDA_SUCCESS) function = nullptr;
        }
    }
}

inline bool load_kernels(const void* image, Kernels& kernels, ErrorText error) {
    if (number_of_kernels > MOST_KERNELS) return refuse(error, "there are too many kernels");
    api.cuCtxGetCurrent(&kernels.context);
    if (kernels.context == nullptr) return refuse(error, "no CUDA context is current in this thread");
    if (const CUresult result = api.cuModuleLoadData(&kernels.module, image))
        return refuse(error, "cuModuleLoadData failed: %s", name_of(result));
    find_functions(kernels);
    return true;
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

// No call may be under way.
ZENC_EXPORT void zenc_unload_kernels(void* kernels) {
    const zenc::BesideCaptures beside;
    auto* const loaded = static_cast<zenc::Kernels*>(kernels);
    zenc::api.cuCtxSetCurrent(loaded->context);
    zenc::api.cuModuleUnload(loaded->module);
    delete loaded;
}
}
