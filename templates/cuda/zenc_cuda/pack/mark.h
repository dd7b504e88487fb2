// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor. The bitmap of
// all parts is cleared before.
#pragma once

#include "zenc/bits.h"
#include "zenc/geometry.h"
#include "zenc/launch.h"
#include "zenc/values.h"
#include "zenc_cuda/primitives/copy_rows.h"

namespace zenc {

// A popular unit is asked for first: its atomics would wait for each other.
ZENC_DEVICE void set_bit(u64* bitmap, u64 bit) {
    u64* const word = bitmap + bit / 64;
    const u64 mask = 1ULL << (bit % 64);
    if ((load_relaxed(word) & mask) == 0) atomicOr(word, mask);
}

// Sets the bits of the slots of n units, and slots_out[i] = slot of ids[i]. *status, which is ~0 before,
// becomes the smallest i whose id is out of range; its slot is 0.
//
// Reads 8 and writes 8 bytes a unit, and reads and sets a bit.
template <class Mapping>
ZENC_DEVICE void mark_units(const Geometry<Mapping>& geometry, const i64* ids, i64 n, u64* bitmap,
                            i64* slots_out, u64* status) {
    for (u64 i = thread_of_row(); i < static_cast<u64>(n); i += threads_of_row()) {
        const u64 unit = static_cast<u64>(ids[i]);  // a negative id is a huge one
        if (unit >= geometry.units) {
            atomicMin(status, i);
            slots_out[i] = 0;
            continue;
        }
        const u64 slot = geometry.slot_of(unit);
        slots_out[i] = static_cast<i64>(slot);
        set_bit(bitmap, geometry.bit_of(slot));
    }
}

// Not 0 if anything in a vector of Bits is neither +0 nor -0.
template <class Bits>
ZENC_DEVICE u64 magnitude(Bits value) {
    return magnitude_bits(value);
}

template <class Bits>
ZENC_DEVICE u64 magnitude(uint4 value) {
    constexpr u32 LOWER = sizeof(Bits) == 2 ? 0x7fff7fff : sizeof(Bits) == 4 ? 0x7fffffff : 0xffffffff;
    constexpr u32 UPPER = sizeof(Bits) == 2 ? 0x7fff7fff : 0x7fffffff;
    return ((value.x | value.z) & LOWER) | ((value.y | value.w) & UPPER);
}

// Not 0 if anything in a vector is not +0.
template <class Bits>
ZENC_DEVICE u64 all_bits(Bits value) {
    return value;
}

ZENC_DEVICE u64 all_bits(uint4 value) {
    return value.x | value.y | value.z | value.w;
}

// Rows of `vectors` Vectors. Of a long row a warp takes a chunk, and reads it only up to the first value that
// is not zero; of short rows it takes several. If it `clears`, and no row is longer than a chunk, each -0 of
// rows that are not marked becomes +0.
template <class Bits, class Mapping, class Vector>
ZENC_DEVICE void mark_rows(const Geometry<Mapping>& geometry, Vector* tensor, u64 vectors, bool clears,
                           u64* bitmap) {
    constexpr u64 CHUNK = MARKED_BYTES / sizeof(Vector);
    const Group group(vectors);
    const Divider chunks(ceil_divide(vectors, CHUNK));
    const u64 items = vectors == 0 ? 0 : geometry.units * chunks.divisor;
    for (u64 first = warp_of_row() * group.in_warp(); first < items;
         first += warps_of_row() * group.in_warp()) {
        const u64 item = first + group.index();
        const u64 row = chunks.quotient(item);
        const u64 begin = (item - row * chunks.divisor) * CHUNK;
        const u64 end = vectors - begin < CHUNK ? vectors : begin + CHUNK;
        u32 found = 0;  // lanes that have found something, of all groups; a group of several has one round
        u64 some = 0;
        for (u64 at = begin; at < end && found == 0; at += group.size * AHEAD) {
            u64 any = 0;
            for (u32 k = 0; k < AHEAD; ++k) {
                const u64 column = at + k * group.size + group.rank();
                if (item >= items || column >= end) continue;
                const Vector vector = load_once(tensor + row * vectors + column);
                any |= magnitude<Bits>(vector);
                some |= all_bits(vector);
            }
            found = __ballot_sync(ALL_LANES, any != 0);
        }
        const bool marked = (found & group.mask()) != 0;
        if (group.rank() == 0 && marked) set_bit(bitmap, geometry.bit_of(geometry.slot_of(row)));
        for (u64 column = begin + group.rank(); clears && !marked && some != 0 && column < end;
             column += group.size)
            tensor[row * vectors + column] = Vector{};
    }
}

// Marks the units of tensor [units, width] that hold anything but +0 and -0 (so NaN counts), with clears as
// in mark_rows. Single values come here where slots follow from tables; of others see pack_values.
//
// Reads the tensor once, of an occupied row often only the beginning. Sets a bit a row.
template <class T, class Mapping>
ZENC_DEVICE void mark_dense(const Geometry<Mapping>& geometry, T* tensor, bool clears, u64* bitmap) {
    using Bits = typename Type<T>::Bits;
    const u64 row_bytes = geometry.width * sizeof(T);
    if ((row_bytes | reinterpret_cast<u64>(tensor)) % sizeof(uint4) == 0)
        mark_rows<Bits>(geometry, reinterpret_cast<uint4*>(tensor), row_bytes / sizeof(uint4), clears,
                        bitmap);
    else
        mark_rows<Bits>(geometry, reinterpret_cast<Bits*>(tensor), geometry.width, clears, bitmap);
}

}  // namespace zenc
