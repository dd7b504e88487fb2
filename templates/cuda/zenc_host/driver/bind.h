// Finding the two libraries, and the functions in them.
#pragma once

#include <cstdio>

#include "zenc_host/driver/api.h"

namespace zenc {

// Where the text of a failure goes: `size` bytes at `text`, cut off if they do not suffice.
struct ErrorText {
    char* text;
    u64 size;
};

// Says why and returns false.
template <class... Words>
inline bool refuse(ErrorText error, const char* format, Words... words) {
    if (error.size != 0) std::snprintf(error.text, error.size, format, words...);
    return false;
}

inline void* open_library(const char* path, ErrorText error) {
    void* const library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) refuse(error, "%s can't be loaded: %s", path, dlerror());
    return library;
}

template <class Function>
inline bool bind(void* library, const char* path, const char* name, Function*& function, ErrorText error) {
    function = reinterpret_cast<Function*>(dlsym(library, name));
    return function != nullptr || refuse(error, "%s has no function %s", path, name);
}

#define ZENC_BIND(Result, name, parameters) \
    if (!bind(library, path, #name, found.name, error)) return false;

inline bool bind_cuda(const char* path, Api& found, ErrorText error) {
    void* const library = open_library(path, error);
    if (library == nullptr) return false;
    ZENC_CUDA_CALLS(ZENC_BIND)
    if (const CUresult result = found.cuInit(0))
        return refuse(error, "cuInit of %s failed: %s", path, name_of(result, found));
    int version = 0;
    if (found.cuDriverGetVersion(&version) != CUDA_SUCCESS || version < OLDEST_DRIVER)
        return refuse(error, "the driver %s is of CUDA %d.%d; zenc needs %d.%d or a newer one", path,
                      version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000, OLDEST_DRIVER % 1000 / 10);
    return true;
}

inline bool bind_nccl(const char* path, Api& found, ErrorText error) {
    void* const library = open_library(path, error);
    if (library == nullptr) return false;
    ZENC_NCCL_CALLS(ZENC_BIND)
    int version = 0;
    if (found.ncclGetVersion(&version) != ncclSuccess || version < OLDEST_NCCL)
        return refuse(error, "%s is NCCL %d.%d.%d; zenc needs %d.%d or a newer one", path, version / 10000,
                      version / 100 % 100, version % 100, OLDEST_NCCL / 10000, OLDEST_NCCL / 100 % 100);
    return true;
}

#undef ZENC_BIND

}  // namespace zenc

extern "C" {

// Binds CUDA's driver and NCCL from the libraries at two paths, or names that the loader knows. Returns 1, or
// 0 with the reason in `error`. One rank alone needs no NCCL: its path may be null.
ZENC_EXPORT zenc::i64 zenc_bind(const char* cuda_path, const char* nccl_path, char* error, zenc::u64 size) {
    zenc::Api found;
    if (!zenc::bind_cuda(cuda_path, found, {error, size})) return 0;
    if (nccl_path != nullptr && !zenc::bind_nccl(nccl_path, found, {error, size})) return 0;
    zenc::api = found;
    return 1;
}
}
