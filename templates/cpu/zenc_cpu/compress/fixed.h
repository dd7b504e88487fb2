// Fixed point: multiples of a power of two that all ranks share, as integers of few bits or by the coder.
#pragma once

#include "zenc/compress/coder.h"
#include "zenc_cpu/compress/codes.h"

namespace zenc {

constexpr i64 BROKEN = -1;  // values that are no such integers, or bytes that nobody has written

// left becomes what is lost; gradient the multiples, which are exact if its type has the bits for them.
template <class T>
inline void quantise_fixed(float* left, u64 n, int exponent, u32 levels, T* gradient) {
    const float step = step_with(exponent);
    const auto most = static_cast<int>(levels);
    float x[STRETCH];
    T rounded[STRETCH];
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        std::memcpy(x, left + first, length * sizeof(float));
        for (u64 i = 0; i < length; ++i)
            rounded[i] = Type<T>::round(static_cast<float>(clamp_to(nearest(x[i] / step), most)) * step);
        std::memcpy(static_cast<void*>(gradient + first), rounded, length * sizeof(T));
        for (u64 i = 0; i < length; ++i) left[first + i] = x[i] - Type<T>::widen(rounded[i]);
    }
}

// numbers = values / 2^exponent. Returns false if any is no integer of `bits` bits.
template <class T>
inline bool to_integers(const T* values, u64 n, int exponent, u32 bits, int* numbers) {
    const float step = power_of_two(exponent);
    const auto most = static_cast<int>(bits_of(static_cast<float>(1U << (bits - 1))));
    u32 wrong = 0;
    for (u64 i = 0; i < n; ++i) {
        const float quotient = Type<T>::widen(values[i]) / step;
        const u32 inside = 0U - static_cast<u32>(static_cast<int>(magnitude_of(quotient)) < most);
        numbers[i] = static_cast<int>(float_of(bits_of(quotient) & inside));
        wrong |= static_cast<u32>(static_cast<float>(numbers[i]) != quotient);
    }
    return wrong == 0;
}

template <class T>
inline void from_integers(const int* numbers, u64 n, int exponent, T* values) {
    const float step = step_with(exponent);
    for (u64 i = 0; i < n; ++i) values[i] = Type<T>::round(static_cast<float>(numbers[i]) * step);
}

// The greatest power of two that all of the values are multiples of, by its exponent; NOT_FINITE unless they
// are finite. Whoever made them of a shared step need not say which it was.
template <class T>
inline int common_exponent(const T* values, u64 n) {
    u32 least = INFINITE, greatest = 0;
    float x[STRETCH];
    for (u64 first = 0; first < n; first += STRETCH) {
        const u64 length = n - first < STRETCH ? n - first : STRETCH;
        widen_all(values + first, length, x);
        for (u64 i = 0; i < length; ++i) {
            const u32 lowest = lowest_bit(x[i]);
            least = lowest < least ? lowest : least;
        }
        const u32 most = greatest_magnitude(x, length);
        greatest = most > greatest ? most : greatest;
    }
    if (greatest >= INFINITE) return NOT_FINITE;
    if (least == INFINITE) return 0;
    return least >> 23 ? static_cast<int>(least >> 23) - 127 : static_cast<int>(bit_length(least)) - 150;
}

// Integers are packed by their offset from the least, which is not used.
inline void pack_integers(const int* numbers, u64 n, u32 bits, u8* out) {
    u32 q[PACKED_WINDOW];
    const u32 offset = 1U << (bits - 1);
    for (u64 first = 0; first < n; first += PACKED_WINDOW) {
        const u64 length = n - first < PACKED_WINDOW ? n - first : PACKED_WINDOW;
        for (u64 i = 0; i < length; ++i) q[i] = static_cast<u32>(numbers[first + i]) + offset;
        Bits{bits}.pack(q, length, out);
        out += packed_bytes(bits, length);
    }
}

inline void unpack_integers(const u8* in, u64 n, u32 bits, int* numbers) {
    u32 q[PACKED_WINDOW];
    const u32 offset = 1U << (bits - 1);
    for (u64 first = 0; first < n; first += PACKED_WINDOW) {
        const u64 length = n - first < PACKED_WINDOW ? n - first : PACKED_WINDOW;
        Bits{bits}.unpack(in, length, q);
        for (u64 i = 0; i < length; ++i) numbers[first + i] = static_cast<int>(q[i] - offset);
        in += packed_bytes(bits, length);
    }
}

// Values that are not all finite are written as NaN, in as many bytes as ever.
template <class T>
inline i64 encode_fixed(const T* values, u64 count, u32 bits, u8* out) {
    const int exponent = common_exponent(values, count);
    std::memcpy(out, &exponent, sizeof exponent);
    u8* packed = out + sizeof exponent;
    int numbers[PACKED_WINDOW] = {};
    for (u64 start = 0; start < count; start += PACKED_WINDOW) {
        const u64 n = count - start < PACKED_WINDOW ? count - start : PACKED_WINDOW;
        if (exponent != NOT_FINITE && !to_integers(values + start, n, exponent, bits, numbers)) return BROKEN;
        pack_integers(numbers, n, bits, packed);
        packed += packed_bytes(bits, n);
    }
    return packed - out;
}

template <class T>
inline i64 decode_fixed(const u8* in, u64 count, u32 bits, T* values) {
    int exponent;
    std::memcpy(&exponent, in, sizeof exponent);
    if (!is_exponent(exponent)) return BROKEN;
    const u8* packed = in + sizeof exponent;
    int numbers[PACKED_WINDOW];
    for (u64 start = 0; start < count; start += PACKED_WINDOW) {
        const u64 n = count - start < PACKED_WINDOW ? count - start : PACKED_WINDOW;
        unpack_integers(packed, n, bits, numbers);
        packed += packed_bytes(bits, n);
        from_integers(numbers, n, exponent, values + start);
    }
    return packed - in;
}

template <class T>
inline i64 encode_adaptive(const T* values, u64 count, u32 bits, u8* out) {
    const int exponent = common_exponent(values, count);
    u8* lengths = out + CODED_HEADER;
    u8* at = lengths + ceil_divide(count, CHUNK) * sizeof(u32);
    int numbers[CHUNK];
    if (exponent == NOT_FINITE) std::memset(numbers, 0, sizeof numbers);
    for (u64 start = 0; start < count; start += CHUNK, lengths += sizeof(u32)) {
        const u64 n = count - start < CHUNK ? count - start : CHUNK;
        if (exponent != NOT_FINITE && !to_integers(values + start, n, exponent, bits, numbers)) return BROKEN;
        const u64 most = packed_bytes(bits, n);
        const u64 coded = encode_chunk(numbers, n, bits, at, most);
        if (coded == 0) pack_integers(numbers, n, bits, at);
        const u32 length = coded ? static_cast<u32>(coded) : static_cast<u32>(most) | STORED;
        std::memcpy(lengths, &length, sizeof length);
        at += length & ~STORED;
    }
    const i64 header[2] = {at - out, static_cast<u32>(exponent)};
    std::memcpy(out, header, sizeof header);
    return at - out;
}

// The chunks of some bytes, one after another or two at a time.
class CodedChunks {
public:
    // `lengths` and the chunks, of which there are `bytes`.
    CodedChunks(const u8* lengths, const u8* in, u64 bytes, u64 count, u32 bits)
        : lengths_(lengths), in_(in), left_(bytes), count_(count), bits_(bits) {}

    // The next numbers, of one chunk or of two that are coded and full. Returns how many, 0 for bytes that
    // nobody has written.
    u64 next(int* numbers) {
        const u64 n = count_ < CHUNK ? count_ : CHUNK;
        const u64 lengths[2] = {length(0), count_ < 2 * CHUNK ? STORED : length(1)};
        const bool two = lengths[0] < STORED && lengths[1] < STORED;
        const u64 bytes = two ? lengths[0] + lengths[1] : lengths[0] & ~u64{STORED};
        if (bytes > left_) return 0;
        const bool right = two                   ? decode_two_chunks(in_, lengths, bits_, numbers)
                           : lengths[0] < STORED ? decode_chunk(in_, bytes, n, bits_, numbers)
                                                 : bytes == packed_bytes(bits_, n);
        if (lengths[0] >= STORED && right) unpack_integers(in_, n, bits_, numbers);
        const u64 found = two ? 2 * CHUNK : n;
        in_ += bytes;
        left_ -= bytes;
        count_ -= found;
        lengths_ += (two ? 2 : 1) * sizeof(u32);
        return right ? found : 0;
    }

    u64 left() const { return left_; }

private:
    u64 length(u64 chunk) const {
        u32 length;
        std::memcpy(&length, lengths_ + chunk * sizeof length, sizeof length);
        return length;
    }

    const u8* lengths_;
    const u8* in_;
    u64 left_, count_;
    const u32 bits_;
};

// `bytes` are there. Returns how many of them it was.
template <class T>
inline i64 decode_adaptive(const u8* in, u64 bytes, u64 count, u32 bits, T* values) {
    i64 header[2];
    const u64 first = CODED_HEADER + ceil_divide(count, CHUNK) * sizeof(u32);
    if (bytes < first) return BROKEN;
    std::memcpy(header, in, sizeof header);
    if (header[0] < 0 || static_cast<u64>(header[0]) > bytes || header[1] >> 32) return BROKEN;
    const auto all = static_cast<u64>(header[0]);
    const auto exponent = static_cast<int>(static_cast<u32>(header[1]));
    if (!is_exponent(exponent) || all < first) return BROKEN;
    CodedChunks chunks(in + CODED_HEADER, in + first, all - first, count, bits);
    int numbers[2 * CHUNK];
    for (u64 start = 0; start < count;) {
        const u64 n = chunks.next(numbers);
        if (n == 0) return BROKEN;
        from_integers(numbers, n, exponent, values + start);
        start += n;
    }
    return chunks.left() == 0 ? static_cast<i64>(all) : BROKEN;
}

}  // namespace zenc
