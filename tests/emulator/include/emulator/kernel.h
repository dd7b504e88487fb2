// How kernels and their shared memory are declared: the emulator's side of
// templates/cuda/zenc_cuda/platform.h.
#pragma once

#include "emulator/engine.h"

namespace emulator {

template <class T>
T parameter(u64 word) {
    static_assert(sizeof(T) == 8, "every parameter of a kernel has 8 bytes: a pointer or an i64");
    T value;
    __builtin_memcpy(&value, &word, sizeof value);
    return value;
}

template <int... I>
struct Indices {};

template <auto F>
struct Launcher;

template <class... P, void (*F)(P...)>
struct Launcher<F> {
    static constexpr int COUNT = sizeof...(P);

    static void call(const u64* words) {
        call_with(words, static_cast<Indices<__integer_pack(COUNT)...>*>(nullptr));
    }

    template <int... I>
    static void call_with([[maybe_unused]] const u64* words, Indices<I...>*) {
        F(parameter<P>(words[I])...);
    }
};

}  // namespace emulator

#define ZENC_KERNEL(name, parameters)                                                         \
    static void name##_body parameters;                                                       \
    extern "C" {                                                                              \
    extern const emulator::Kernel emulator_kernel_##name;                                     \
    }                                                                                         \
    const emulator::Kernel emulator_kernel_##name = {#name, #parameters,                      \
                                                     emulator::Launcher<&name##_body>::COUNT, \
                                                     emulator::Launcher<&name##_body>::call}; \
    static void name##_body parameters

#define ZENC_SHARED(T, name, n)       \
    static const char name##_tag = 0; \
    T(&name)                          \
    [n] = *static_cast<T(*)[n]>(      \
        emulator_shared(&name##_tag, sizeof(T) * (n), __builtin_FILE(), __builtin_LINE()))
