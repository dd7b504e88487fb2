// Copying and clearing of lengths that may be 0, and work space for the length of one kernel call.
#pragma once

#include <cstdlib>
#include <cstring>

#include "zenc/config.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

// For functions that many instantiations share, or that work on a whole batch: a copy of them in every caller
// costs a second of compile time, and saves nothing.
#define ZENC_SHARED_CODE __attribute__((noinline))

namespace zenc {

// memcpy and memset forbid null pointers even for no bytes, and empty arrays often are null.
inline void copy_bytes(void* to, const void* from, u64 bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
}

inline void clear_bytes(void* to, u64 bytes) {
    if (bytes != 0) std::memset(to, 0, bytes);
}

// For rows: a few cache lines are copied before a call of memcpy has chosen its way.
inline void copy_short(void* to, const void* from, u64 bytes) {
    constexpr u64 LINE = 64;
    constexpr u64 MOST_LINES = 16;
    const u64 lines = bytes / LINE;
    if (lines > MOST_LINES) return copy_bytes(to, from, bytes);
    auto* out = static_cast<unsigned char*>(to);
    const auto* in = static_cast<const unsigned char*>(from);
    for (u64 line = 0; line < lines; ++line, out += LINE, in += LINE) std::memcpy(out, in, LINE);
    copy_bytes(out, in, bytes % LINE);
}

constexpr u64 LINE_BYTES = 64;

// One line, past the caches; `to` is aligned to a line. Only where CAN_STREAM.
#if defined(__AVX512F__) || defined(__SSE2__)
constexpr bool CAN_STREAM = true;

inline void stream_line(void* to, const void* from) {
#if defined(__AVX512F__)
    _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
#else
    for (int i = 0; i < 4; ++i)
        _mm_stream_si128(static_cast<__m128i*>(to) + i,
                         _mm_loadu_si128(static_cast<const __m128i*>(from) + i));
#endif
}

inline void end_of_streams() {
    _mm_sfence();
}
#else
constexpr bool CAN_STREAM = false;

inline void stream_line(void* to, const void* from) {
    std::memcpy(to, from, LINE_BYTES);
}

inline void end_of_streams() {}
#endif

// Cleared work space. A kernel never throws: it asks `failed()` and returns NO_MEMORY.
template <class T>
class Scratch {
public:
    // Cleared memory costs nothing here: the system hands out zero pages.
    explicit Scratch(u64 n) : data_(static_cast<T*>(std::calloc(n ? n : 1, sizeof(T)))) {}
    ~Scratch() { std::free(data_); }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;

    bool failed() const { return data_ == nullptr; }
    T* get() const { return data_; }
    T& operator[](u64 i) const { return data_[i]; }

private:
    T* data_;
};

}  // namespace zenc
