// Copying and clearing of lengths that may be 0, work space for the length of one kernel call, and rows of
// values: copied, divided, summed.
#pragma once

#include <cstdlib>
#include <cstring>

#include "zenc/config.h"
#include "zenc/values.h"

#if defined(__AVX512F__)
#include <immintrin.h>
#elif defined(__SSE2__)
#include <emmintrin.h>
#endif

// Keeps a function out of line, if many instantiations share it, or it works on a whole batch: a copy of it
// in every caller costs a second of compile time, and saves nothing.
#define ZENC_SHARED_CODE __attribute__((noinline))

namespace zenc {

// memcpy and memset forbid null pointers even for no bytes, and empty arrays often are null.
inline void copy_bytes(void* to, const void* from, u64 bytes) {
    if (bytes != 0) std::memcpy(to, from, bytes);
}

inline void clear_bytes(void* to, u64 bytes) {
    if (bytes != 0) std::memset(to, 0, bytes);
}

// Copies a row: a few cache lines are copied before a call of memcpy has chosen its way.
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

// Streams one line past the caches; `to` is aligned to a line. Only where CAN_STREAM.
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

template <class T>
inline void copy_row(const T* from, u64 width, T* to) {
    if (width == 1)
        *to = *from;
    else
        copy_short(to, from, width * sizeof(T));
}

// Copies rows to random places of one array. A line that is stored at random is read first; where the array
// is larger than a core's own caches anyway, whole lines are written past them, as memcpy does it.
class RowCopy {
public:
    RowCopy(const void* array, u64 bytes, u64 row_bytes)
        : streams_(CAN_STREAM && bytes >= LARGE && row_bytes != 0 && row_bytes % LINE_BYTES == 0 &&
                   reinterpret_cast<u64>(array) % LINE_BYTES == 0) {}

    template <class T, class Width>
    void row(const T* from, Width width, T* to) const {
        if (!streams_) return copy_row(from, width, to);
        const auto* in = reinterpret_cast<const u8*>(from);
        auto* out = reinterpret_cast<u8*>(to);
        for (u64 i = 0; i < width * sizeof(T); i += LINE_BYTES) stream_line(out + i, in + i);
    }

    // Before another thread may look at what was written.
    void finish() const {
        if (streams_) end_of_streams();
    }

private:
    static constexpr u64 LARGE = 4 << 20;

    const bool streams_;
};

template <class T>
ZENC_SHARED_CODE inline void divide_values(const T* from, u64 n, typename Type<T>::Sum divisor, T* to) {
    for (u64 i = 0; i < n; ++i) to[i] = Type<T>::round(Type<T>::widen(from[i]) / divisor);
}

// to = from / divisor; a divisor of 1 copies the bits.
template <class T>
inline void divide_row(const T* from, u64 width, typename Type<T>::Sum divisor, T* to) {
    if (divisor == 1)
        copy_row(from, width, to);
    else if (width == 1)
        *to = Type<T>::round(Type<T>::widen(*from) / divisor);
    else
        divide_values(from, width, divisor, to);
}

// to = the sum of n rows (n >= 1) in their order, rounded once; DIVIDED: each divided first. One row alone is
// copied.
template <bool DIVIDED, class T>
ZENC_SHARED_CODE inline void sum_rows(const T* const* rows, u64 n, u64 width, typename Type<T>::Sum divisor,
                                      T* __restrict to) {
    using Sum = typename Type<T>::Sum;
    constexpr u64 CHUNK = 64;  // columns whose sums stay in registers
    const auto value = [&](T x) { return DIVIDED ? Type<T>::widen(x) / divisor : Type<T>::widen(x); };
    if (n == 1) return divide_row(rows[0], width, divisor, to);
    for (u64 first = 0; first < width; first += CHUNK) {
        const u64 columns = width - first < CHUNK ? width - first : CHUNK;
        Sum sums[CHUNK];
        for (u64 i = 0; i < columns; ++i) sums[i] = value(rows[0][first + i]);
        for (u64 k = 1; k < n; ++k) {
            const T* const row = rows[k] + first;
            for (u64 i = 0; i < columns; ++i) sums[i] += value(row[i]);
        }
        for (u64 i = 0; i < columns; ++i) to[first + i] = Type<T>::round(sums[i]);
    }
}

}  // namespace zenc
