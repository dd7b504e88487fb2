// Shared memory by addresses of its own: of generic pointers the compiler makes each address anew, in four
// instructions before every access.
#pragma once

#include "zenc_cuda/platform.h"

#ifndef ZENC_EMULATOR  // which has names of its own for this

namespace zenc {

using SharedAddress = u32;

ZENC_DEVICE SharedAddress shared_address(const void* of) {
    return static_cast<u32>(__cvta_generic_to_shared(of));
}

template <class T>
ZENC_DEVICE void store_shared(SharedAddress at, T value) {
    if constexpr (sizeof(T) == 8)
        asm volatile("st.shared.u64 [%0], %1;" ::"r"(at), "l"(__builtin_bit_cast(u64, value)) : "memory");
    else if constexpr (sizeof(T) == 4)
        asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(__builtin_bit_cast(u32, value)) : "memory");
    else if constexpr (sizeof(T) == 2)
        asm volatile("st.shared.u16 [%0], %1;" ::"r"(at), "h"(value) : "memory");
    else
        asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(static_cast<u32>(value)) : "memory");
}

template <class T>
ZENC_DEVICE T load_shared(SharedAddress at) {
    if constexpr (sizeof(T) == 8) {
        u64 found;
        asm volatile("ld.shared.u64 %0, [%1];" : "=l"(found) : "r"(at) : "memory");
        return __builtin_bit_cast(T, found);
    } else if constexpr (sizeof(T) == 4) {
        u32 found;
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(found) : "r"(at) : "memory");
        return __builtin_bit_cast(T, found);
    } else {
        u16 found;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(found) : "r"(at) : "memory");
        return found;
    }
}

// The value is there once this thread has awaited its copies.
template <class T>
ZENC_DEVICE void copy_to_shared(SharedAddress at, const T* from) {
#if __CUDA_ARCH__ >= 800
    if constexpr (sizeof(T) == 4) {
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
        return;
    }
#endif
    store_shared(at, *from);
}

ZENC_DEVICE void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace zenc

#endif
