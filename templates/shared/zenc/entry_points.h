// Entry points: the functions of a library that Python calls, in one table with their types as the compiler
// knows them. zenc/runtime/cpu/bindings.py declares them to ctypes by that table, so the two can't differ.
#pragma once

#include "zenc/constants.h"

// Marks functions that are called from outside.
#define ZENC_EXPORT __attribute__((visibility("default")))

namespace zenc {

struct EntryPoint {
    const char* name;
    const char* kinds;  // the KIND of the result, and of each argument
    void (*function)();
};

// The letter of ctypes for a type: there is none for others.
template <class T>
constexpr char KIND = T::has_no_letter;
template <class T>
constexpr char KIND<T*> = 'P';
template <class T>
constexpr char KIND<T&> = 'P';
template <>
constexpr char KIND<void> = 'v';
template <>
constexpr char KIND<bool> = '?';
template <>
constexpr char KIND<int> = 'i';
template <>
constexpr char KIND<u32> = 'I';
template <>
constexpr char KIND<i64> = 'q';
template <>
constexpr char KIND<u64> = 'Q';
template <>
constexpr char KIND<float> = 'f';
template <>
constexpr char KIND<double> = 'd';

template <class Result, class... Arguments>
constexpr char KINDS[] = {KIND<Result>, KIND<Arguments>..., 0};

template <class Result, class... Arguments>
EntryPoint entry(const char* name, Result (*function)(Arguments...)) {
    return {name, KINDS<Result, Arguments...>, reinterpret_cast<void (*)()>(function)};
}

// A method as a function of the object's address.
template <auto method>
struct Method;

template <class T, class Result, class... Arguments, Result (T::*method)(Arguments...)>
struct Method<method> {
    static Result call(T* self, Arguments... arguments) { return (self->*method)(arguments...); }
};

}  // namespace zenc

extern "C" {
// Each library defines its own; {} ends it.
ZENC_EXPORT extern const zenc::EntryPoint zenc_entry_points[];

ZENC_EXPORT zenc::i64 zenc_abi_version() {
    return ZENC_ABI_VERSION;
}
}
