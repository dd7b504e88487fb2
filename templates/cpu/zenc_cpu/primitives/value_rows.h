// Rows of values: copied, divided, summed.
#pragma once

#include "zenc/values.h"
#include "zenc_cpu/primitives/memory.h"

namespace zenc {

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
