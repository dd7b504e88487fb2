// Declarations of kernels and their shared memory: the emulator's side of
// templates/cuda/zenc_cuda/platform.h.
#pragma once

#include "emulator/engine.h"

namespace emulator {

template <class T>
struct Parameter {
    static_assert(sizeof(T) % 8 == 0, "parameters of a kernel are words, or structures of words");

    static T of(const u64* words) {
        struct Words {
            u64 words[sizeof(T) / 8];
        } of_value;
        __builtin_memcpy(&of_value, words, sizeof of_value);
        return __builtin_bit_cast(T, of_value);
    }
};

// Large arguments stay where they are.
template <class T>
struct Parameter<const T&> {
    static const T& of(const u64* words) { return *reinterpret_cast<const T*>(words); }
};

template <int... I>
struct Indices {};

template <auto F>
struct Launcher;

template <class... P, void (*F)(P...)>
struct Launcher<F> {
    static constexpr int COUNT = sizeof...(P);
    static constexpr int SIZES[COUNT + 1] = {sizeof(P) / 8 ..., 0};  // in words

    static constexpr int words_before(int parameter) {
        int words = 0;
        for (int i = 0; i < parameter; ++i) words += SIZES[i];
        return words;
    }

    static void call(const u64* words) {
        call_with(words, static_cast<Indices<__integer_pack(COUNT)...>*>(nullptr));
    }

    template <int... I>
    static void call_with([[maybe_unused]] const u64* words, Indices<I...>*) {
        F(Parameter<P>::of(words + words_before(I))...);
    }
};

}  // namespace emulator

#define ZENC_KERNEL(name, parameters, ...)                                                \
    static void name##_body parameters;                                                   \
    extern "C" {                                                                          \
    extern const emulator::Kernel emulator_kernel_##name;                                 \
    }                                                                                     \
    const emulator::Kernel emulator_kernel_##name = {                                     \
        #name, #parameters, emulator::Launcher<&name##_body>::COUNT,                      \
        emulator::Launcher<&name##_body>::SIZES, emulator::Launcher<&name##_body>::call}; \
    static void name##_body parameters

#define ZENC_TABLES const zenc::Tables& tables

#define ZENC_SHARED(T, name, n)       \
    static const char name##_tag = 0; \
    T(&name)                          \
    [n] = *static_cast<T(*)[n]>(      \
        emulator_shared(&name##_tag, sizeof(T) * (n), __builtin_FILE(), __builtin_LINE()))
