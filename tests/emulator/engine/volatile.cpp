// Volatile accesses for race detectors. On a GPU they are single accesses, and race with plain ones only: so
// they count as relaxed atomic ones. The compiler calls these functions before each of them
// (--param=tsan-distinguish-volatile=1).
#include "emulator/engine.h"

#define EMULATOR_VOLATILE(T, bytes, bits)                                           \
    extern "C" {                                                                    \
    [[gnu::weak]] T __tsan_atomic##bits##_load(const volatile T* p, int order);     \
    [[gnu::weak]] T __tsan_atomic##bits##_fetch_add(volatile T* p, T n, int order); \
    void __tsan_volatile_read##bytes(void* p) {                                     \
        emulator_contended(p);                                                      \
        __tsan_atomic##bits##_load(static_cast<T*>(p), __ATOMIC_RELAXED);           \
    }                                                                               \
    void __tsan_volatile_write##bytes(void* p) {                                    \
        emulator_contended(p);                                                      \
        __tsan_atomic##bits##_fetch_add(static_cast<T*>(p), 0, __ATOMIC_RELAXED);   \
    }                                                                               \
    }

EMULATOR_VOLATILE(char, 1, 8)
EMULATOR_VOLATILE(short, 2, 16)
EMULATOR_VOLATILE(int, 4, 32)
EMULATOR_VOLATILE(long, 8, 64)
