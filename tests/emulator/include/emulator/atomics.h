// Atomic functions, fences, and loads with a hint. They exist for the types for which CUDA has them, and are
// relaxed, as there: order between threads comes from fences and barriers alone.
#pragma once

#include "emulator/engine.h"

namespace emulator {

// Checks the address of an atomic function, as the compiler checks those of loads and stores.
template <class T>
void check_aligned(const T* p, const char* file, int line) {
    if (reinterpret_cast<u64>(p) % sizeof(T) != 0)
        emulator_misaligned("an atomic function", p, sizeof(T), file, line);
}

template <class T, class Change>
T exchange(T* p, Change change, const char* file, int line) {
    check_aligned(p, file, line);
    emulator_contended(p);
    T old = __atomic_load_n(p, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(p, &old, change(old), true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
    }
    return old;
}

}  // namespace emulator

#define EMULATOR_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define EMULATOR_ATOMIC(name, T, next)                                             \
    inline T name(T* p, T value, EMULATOR_PLACE) {                                 \
        return emulator::exchange(p, [value](T old) { return next; }, file, line); \
    }
#define EMULATOR_ATOMICS(T)                                  \
    EMULATOR_ATOMIC(atomicMin, T, value < old ? value : old) \
    EMULATOR_ATOMIC(atomicMax, T, old < value ? value : old) \
    EMULATOR_ATOMIC(atomicAnd, T, old& value)                \
    EMULATOR_ATOMIC(atomicOr, T, old | value)                \
    EMULATOR_ATOMIC(atomicXor, T, old ^ value)
#define EMULATOR_COUNTERS(T)                                                                             \
    EMULATOR_ATOMIC(atomicAdd, T,                                                                        \
                    static_cast<T>(static_cast<emulator::u64>(old) + static_cast<emulator::u64>(value))) \
    EMULATOR_ATOMIC(atomicExch, T, (static_cast<void>(old), value))                                      \
    inline T atomicCAS(T* p, T expected, T value, EMULATOR_PLACE) {                                      \
        emulator::check_aligned(p, file, line);                                                          \
        emulator_contended(p);                                                                           \
        __atomic_compare_exchange_n(p, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);     \
        return expected;                                                                                 \
    }

EMULATOR_ATOMICS(int)
EMULATOR_ATOMICS(unsigned)
EMULATOR_ATOMICS(long long)
EMULATOR_ATOMICS(unsigned long long)
EMULATOR_COUNTERS(int)
EMULATOR_COUNTERS(unsigned)
EMULATOR_COUNTERS(unsigned long long)

#undef EMULATOR_ATOMIC
#undef EMULATOR_PLACE
#undef EMULATOR_ATOMICS
#undef EMULATOR_COUNTERS

inline void __threadfence() {
    emulator_fence();
}
inline void __threadfence_block() {
    emulator_fence();
}
inline void __threadfence_system() {
    emulator_fence();
}

// Waits a little, and lets other threads of the block go on: what a loop that waits for one has to call.
inline void __nanosleep(unsigned) {
    emulator_pause();
}

// The functions that templates/cuda/zenc_cuda/platform.h has for a GPU.
inline __attribute__((always_inline)) void set_bits(unsigned long long* word, unsigned long long bits) {
    atomicOr(word, bits);
}
inline __attribute__((always_inline)) void keep_bits(unsigned long long* word, unsigned long long bits) {
    atomicAnd(word, bits);
}
inline void ring(unsigned long long* bell, unsigned long long rung) {
    __atomic_store_n(bell, rung, __ATOMIC_RELEASE);
}

template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldcs(const T* p) {
    return *p;
}
template <class T>
void __stcs(T* p, T value) {
    *p = value;
}
