// Shared memory by addresses of its own, as templates/cuda/zenc_cuda/shared_memory.h has them for a GPU: here
// those of any other memory.
#pragma once

#define EMULATOR_INLINE inline __attribute__((always_inline))

using SharedAddress = unsigned long long;

EMULATOR_INLINE SharedAddress shared_address(const void* of) {
    return reinterpret_cast<SharedAddress>(of);
}

template <class T>
EMULATOR_INLINE void store_shared(SharedAddress at, T value) {
    *reinterpret_cast<T*>(at) = value;
}

template <class T>
EMULATOR_INLINE T load_shared(SharedAddress at) {
    return *reinterpret_cast<const T*>(at);
}

template <class T>
EMULATOR_INLINE void copy_to_shared(SharedAddress at, const T* from) {
    store_shared(at, *from);
}

EMULATOR_INLINE void await_copies() {}

#undef EMULATOR_INLINE
