// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor. The bitmap of
// all parts is cleared before.
#pragma once

#include "zenc/bits.h"
#include "zenc/geometry.h"
#include "zenc/values.h"
#include "zenc_cuda/primitives/copy_rows.h"
#include "zenc_cuda/primitives/runs.h"

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

// Rows of one value, in the order of their slots: 32 runs a warp, of whose words each is two ballots. All
// words of the bitmap are written, without atomics.
template <class Mapping, class Bits>
ZENC_DEVICE void mark_runs(const Geometry<Mapping>& geometry, const Bits* tensor, u64* bitmap) {
    constexpr u32 STEPS = 8;  // loads under way; no run is shorter
    const Runs runs{Mapping::IS_IDENTITY ? 6
                                         : run_shift(geometry.mapping)};  // contiguous ones have any length
    const u64 words = runs.all() / 64;
    const Divider by(geometry.part_words);
    for (u64 first = warp_of_row() * words; first < geometry.words(); first += warps_of_row() * words) {
        const u64 begin = 64 * first + lane() * runs.length(), part = by.quotient(begin / 64);
        const u64 local = begin - 64 * part * by.divisor;
        const u64 slots = part < geometry.parts ? geometry.slots_of(part) : 0;
        const u64 left = local < slots ? slots - local : 0;
        const u64 unit = left == 0 ? 0 : geometry.mapping.unit(geometry.first_slot(part) + local);
        const u32 there = static_cast<u32>(left < runs.length() ? left : runs.length());
        u64 mine = 0;  // lane k writes word k
        for (u32 half = 0; half < 2 * words; half += STEPS) {
            Bits values[STEPS];
            runs.for_each(half * WARP, STEPS, [&](u32 step, u32 owner, u32 place) {
                const u64 from = __shfl_sync(ALL_LANES, unit, static_cast<int>(owner));
                const bool has = place < __shfl_sync(ALL_LANES, there, static_cast<int>(owner));
                values[step] = has ? load_once(tensor + from + place) : Bits{0};
            });
            for (u32 step = 0; step < STEPS; ++step) {
                const u64 found = __ballot_sync(ALL_LANES, magnitude<Bits>(values[step]) != 0);
                if (lane() == (half + step) / 2) mine |= found << (step % 2 * WARP);
            }
        }
        if (lane() < words && first + lane() < geometry.words()) bitmap[first + lane()] = mine;
    }
}

// Rows of one value, whose slots follow from tables.
template <class Mapping, class Bits>
ZENC_DEVICE void mark_values(const Geometry<Mapping>& geometry, const Bits* tensor, u64* bitmap) {
    constexpr u32 EACH = 8;  // values of a lane at a time
    for (u64 first = warp_of_row() * WARP * EACH; first < geometry.units; first += threads_of_row() * EACH) {
        Bits values[EACH];
        for (u32 k = 0; k < EACH; ++k) {
            const u64 unit = first + k * WARP + lane();
            values[k] = unit < geometry.units ? tensor[unit] : 0;
        }
        u32 found = 0;
        for (u32 k = 0; k < EACH; ++k) found |= static_cast<u32>(magnitude<Bits>(values[k]) != 0) << k;
        for_each_bit(found, [&](u64 k) {
            set_bit(bitmap, geometry.bit_of(geometry.slot_of(first + k * WARP + lane())));
        });
    }
}

// Rows of `vectors` Vectors. Of a long row a warp takes a chunk, and reads it only up to the first value that
// is not zero; of short rows it takes several.
template <class Bits, class Mapping, class Vector>
ZENC_DEVICE void mark_rows(const Geometry<Mapping>& geometry, const Vector* tensor, u64 vectors,
                           u64* bitmap) {
    constexpr u64 CHUNK = 2048;
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
        for (u64 at = begin; at < end && found == 0; at += group.size * AHEAD) {
            u64 any = 0;
            for (u32 k = 0; k < AHEAD; ++k) {
                const u64 column = at + k * group.size + group.rank();
                if (item < items && column < end)
                    any |= magnitude<Bits>(load_once(tensor + row * vectors + column));
            }
            found = __ballot_sync(ALL_LANES, any != 0);
        }
        if (group.rank() == 0 && (found & group.mask()) != 0)
            set_bit(bitmap, geometry.bit_of(geometry.slot_of(row)));
    }
}

// Marks the units of tensor [units, width] that hold anything but +0 and -0 (so NaN counts).
//
// Reads the tensor once, of an occupied row often only the beginning. Sets a bit a row; of rows of one value,
// but under tables, it writes the words of the bitmap.
template <class T, class Mapping>
ZENC_DEVICE void mark_dense(const Geometry<Mapping>& geometry, const T* tensor, u64* bitmap) {
    using Bits = typename Type<T>::Bits;
    const Bits* const bits = reinterpret_cast<const Bits*>(tensor);
    const u64 row_bytes = geometry.width * sizeof(T);
    if (geometry.width == 1) {
        if constexpr (Mapping::HAS_TABLES)
            mark_values(geometry, bits, bitmap);
        else
            mark_runs(geometry, bits, bitmap);
    } else if ((row_bytes | reinterpret_cast<u64>(tensor)) % sizeof(uint4) == 0) {
        mark_rows<Bits>(geometry, reinterpret_cast<const uint4*>(tensor), row_bytes / sizeof(uint4), bitmap);
    } else {
        mark_rows<Bits>(geometry, bits, geometry.width, bitmap);
    }
}

}  // namespace zenc
