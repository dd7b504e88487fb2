// A gradient becomes the segments of all parts: marked, ranked and placed.
#pragma once

#include "zenc_cuda/rows.h"
#include "zenc_cuda/shared_memory.h"

namespace zenc {

// Marking: a bit for every occupied slot, from unit ids or from the values of a dense tensor. The bitmap of
// all parts, which is one segment, is cleared before.

// Sets a bit, after a look whether it is set: the atomics on a popular unit would wait for each other.
ZENC_DEVICE void set_bit(u64* bitmap, u64 bit) {
    u64* const word = bitmap + bit / 64;
    const u64 mask = 1ULL << (bit % 64);
    if ((load_relaxed(word) & mask) == 0) atomicOr(word, mask);
}

// Sets the bits of the slots of n units, and slots_out[i] = slot of ids[i]. *status, which is 0 before,
// becomes the complement of the smallest i whose id is out of range; its slot is 0.
template <class Mapping>
ZENC_DEVICE void mark_units(const Geometry<Mapping>& geometry, const i64* ids, u64 n, const Segment* marked,
                            i64* slots_out, u64* status) {
    for (u64 i = thread_of_row(); i < n; i += threads_of_row()) {
        const u64 unit = static_cast<u64>(ids[i]);  // a negative id is a huge one
        const bool there = unit < geometry.units;
        const u64 slot = there ? geometry.slot_of(unit) : 0;
        slots_out[i] = static_cast<i64>(slot);
        if (there)
            set_bit(marked->bitmap, geometry.bit_of(slot));
        else
            atomicMax(status, ~i);
    }
}

// Returns the bits of a vector without the signs of its values: 0 if all are +0 or -0.
template <class Bits>
ZENC_DEVICE u64 magnitudes(Bits value) {
    return magnitude_bits(value);
}

template <class Bits>
ZENC_DEVICE u64 magnitudes(uint4 value) {
    constexpr u32 UPPER = sizeof(Bits) == 2 ? 0x7fff7fff : 0x7fffffff;  // of 8 bytes: all bits but signs
    constexpr u32 LOWER = sizeof(Bits) == 8 ? 0xffffffff : UPPER;
    return ((value.x | value.z) & LOWER) | ((value.y | value.w) & UPPER);
}

// Returns the bits of a vector: 0 if all its values are +0.
ZENC_DEVICE u64 all_bits(u64 value) {
    return value;
}

ZENC_DEVICE u64 all_bits(uint4 value) {
    return value.x | value.y | value.z | value.w;
}

// Findings in a row: the lanes that found anything but zeros, and this lane's bits, signs included.
struct Found {
    u32 lanes;
    u64 some;
};

// Looks through the vectors [begin, end) of a row, by a group of lanes, up to the first value that is not
// zero. A group that shares its warp with others has one round.
template <class Bits, class Vector>
ZENC_DEVICE Found look(const Vector* row, u64 begin, u64 end, const Group& group) {
    Found found{};
    for (u64 at = begin; at < end && found.lanes == 0; at += group.size * AHEAD) {
        u64 any = 0;
        for (u32 k = 0; k < AHEAD; ++k) {
            const u64 column = at + k * group.size + group.rank();
            if (row == nullptr || column >= end) continue;
            const Vector vector = load_once(row + column);
            any |= magnitudes<Bits>(vector);
            found.some |= all_bits(vector);
        }
        found.lanes = __ballot_sync(ALL_LANES, any != 0);
    }
    return found;
}

// Marks single values that are neither +0 nor -0, in a mapping whose slots follow from tables; if it
// `clears`, each -0 becomes +0.
template <class Bits, class Mapping>
ZENC_DEVICE void mark_singles(const Geometry<Mapping>& geometry, Bits* tensor, bool clears, u64* bitmap) {
    constexpr u32 TOGETHER = 8;  // values of a lane that are under way together
    constexpr u64 NONE = ~0ULL;
    for (u64 first = warp_of_row() * WARP * TOGETHER + lane(); first - lane() < geometry.units;
         first += warps_of_row() * WARP * TOGETHER) {
        Bits values[TOGETHER];
        u64 bits[TOGETHER];
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k)
            values[k] = first + k * WARP < geometry.units ? tensor[first + k * WARP] : Bits{0};
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k) {
            bits[k] = NONE;
            if (magnitude_bits(values[k]) == 0) continue;
            const auto place = geometry.place_of(first + k * WARP);
            bits[k] = 64 * geometry.part_words * place.part + place.slot;
        }
#pragma unroll
        for (u32 k = 0; k < TOGETHER; ++k)
            if (bits[k] != NONE)
                atomicOr(bitmap + bits[k] / 64, 1ULL << (bits[k] % 64));
            else if (clears && values[k] != 0)
                tensor[first + k * WARP] = 0;
    }
}

// Marks the units of tensor [units, width] that hold anything but +0 and -0 (so NaN counts). If it `clears`,
// and no row is longer than a chunk, each -0 of rows that are not marked becomes +0. Single values come here
// where slots follow from tables; of others see pack_values.
//
// Of a long row a warp takes a chunk, and reads it only up to the first value that is not zero; of short rows
// it takes several.
template <class Bits, class Mapping>
ZENC_DEVICE void mark_dense(const Geometry<Mapping>& geometry, Bits* tensor, bool clears,
                            const Segment* marked) {
    if constexpr (Mapping::HAS_TABLES)
        if (geometry.width == 1) return mark_singles(geometry, tensor, clears, marked->bitmap);
    const u64 row_bytes = geometry.width * sizeof(Bits);
    const bool in_16 = (row_bytes | address_bits(tensor)) % sizeof(uint4) == 0;
    const u64 vector_bytes = in_16 ? sizeof(uint4) : sizeof(Bits);
    const u64 vectors = row_bytes / vector_bytes, chunk = MARKED_BYTES / vector_bytes;
    const Group group(vectors);
    const Divider chunks(ceil_divide(row_bytes, MARKED_BYTES));
    const u64 items = vectors == 0 ? 0 : geometry.units * chunks.divisor;
#pragma unroll 1
    for (u64 first = warp_of_row() * group.in_warp(); first < items;
         first += warps_of_row() * group.in_warp()) {
        const u64 item = first + group.index(), number = chunks.quotient(item);
        const u64 begin = (item - number * chunks.divisor) * chunk;
        const u64 end = vectors - begin < chunk ? vectors : begin + chunk;
        Bits* const values = item < items ? tensor + number * geometry.width : nullptr;
        const auto mark = [&](auto vector) {
            auto* const row = reinterpret_cast<decltype(vector)*>(values);
            const Found found = look<Bits>(row, begin, end, group);
            const bool any = (found.lanes & group.mask()) != 0;
            if (!any && clears && found.some != 0)
#pragma unroll 1
                for (u64 at = begin + group.rank(); at < end; at += group.size) row[at] = {};
            return any;
        };
        const bool there = in_16 ? mark(uint4{}) : mark(Bits{});
        if (there && group.rank() == 0) set_bit(marked->bitmap, geometry.bit_of(geometry.slot_of(number)));
    }
}

// Placing: the values of marked units, moved to where their parts keep them, in the order of their slots.

// Values [n, width] of units in slots [n], none of which comes twice. Each is divided by `divisor` first.
// Lane k of a warp finds the place of row k.
template <class T, class Mapping>
ZENC_DEVICE void place_once(const Geometry<Mapping>& geometry, const Segment* parts, const i64* slots, u64 n,
                            const T* values, i64 dtype, i64 divisor) {
    const Divided<T> divided(dtype, divisor);
    const u64 width = geometry.width, row_bytes = width * sizeof(T);
    const u32 together = row_bytes >= WIDE_ROW ? WIDE_ROWS : WARP;
    for (u64 first = warp_of_row() * together; first < n; first += warps_of_row() * together) {
        const u32 rows = static_cast<u32>(n - first < together ? n - first : together);
        T* to = nullptr;
        if (lane() < rows)
            to = row_of_slot<T>(geometry, parts, static_cast<u64>(slots[first + lane()]), row_bytes);
        divide_rows(values + (first + lane()) * width, rows, width, divided, to);
    }
}

// The marked rows of tensor [units, width], each divided by `divisor`. Row y of the grid has part y.
template <class T, class Mapping>
ZENC_DEVICE void place_dense(const Geometry<Mapping>& geometry, const Segment* parts, const T* tensor,
                             i64 dtype, i64 divisor) {
    const Divided<T> divided(dtype, divisor);
    const u64 width = geometry.width;
    for_each_segment(geometry.parts, [&](u64 part) {
        T* const values = static_cast<T*>(parts[part].values);
        RowBatches batch(parts[part], width * sizeof(T));
        while (batch.next()) {
            const T* from = nullptr;
            if (batch.has_row())
                from = tensor + geometry.mapping.unit(geometry.first_slot(part) + batch.slot()) * width;
            divide_rows(from, batch.rows, width, divided, values + (batch.first + lane()) * width);
        }
    });
}

// Windows: the slots that a warp takes at a time, a word a lane. Their units follow each other in runs: a
// mapping moves blocks of a power of two of them.

constexpr u32 WINDOW = 64 * WARP, STAGED_BYTES = 4096;  // slots; shared memory of a warp

// The logarithm of the length of the runs of a mapping.
template <class Mapping>
ZENC_DEVICE u32 run_shift(const Mapping& mapping) {
    return Mapping::IS_IDENTITY ? 6 : static_cast<u32>(63 - __clzll(static_cast<i64>(mapping.block())));
}

// A window of any values at any addresses: each value is read, and those that are something are read again.
template <class T>
class Window {
public:
    static_assert(WINDOW / LEAST_BLOCK * sizeof(u64) <= STAGED_BYTES,
                  "the first units of all runs have room");

    // A window from slot `begin` of a part on, which has `slots`.
    template <class Mapping>
    ZENC_DEVICE Window(const Geometry<Mapping>& geometry, u64 part, u64 begin, u64 slots, T* tensor,
                       u64* units)
        : tensor_(tensor),
          units_(units),
          slots_(begin < slots ? slots - begin : 0),
          shift_(run_shift(geometry.mapping)) {
        __syncwarp();
        for (u64 run = lane(); run < WINDOW >> shift_ && run << shift_ < slots_; run += WARP)
            units_[run] = geometry.mapping.unit(geometry.first_slot(part) + begin + (run << shift_));
        __syncwarp();
    }

    ZENC_DEVICE T* address(u64 slot) const {
        return tensor_ + units_[slot >> shift_] + (slot & low_mask(shift_));
    }

    // This lane's word: the values that are neither +0 nor -0. If it `clears`, each -0 becomes +0.
    ZENC_DEVICE u64 mark(bool clears) const {
        using Bits = typename Arithmetic<T>::Bits;
        constexpr u32 STEPS = 8;  // loads under way
        u64 word = 0;
#pragma unroll 1
        for (u32 first = 0; first < 64; first += STEPS) {
            Bits values[STEPS];
            for (u32 k = 0; k < STEPS; ++k) {
                const u32 slot = (first + k) * WARP + lane();
                values[k] = slot < slots_ ? *reinterpret_cast<const Bits*>(address(slot)) : Bits{0};
            }
            for (u32 k = 0; k < STEPS; ++k) {
                const u64 found = __ballot_sync(ALL_LANES, magnitude_bits(values[k]) != 0);
                if (lane() == (first + k) / 2) word |= found << ((first + k) % 2 * WARP);
                if (clears && values[k] != 0 && magnitude_bits(values[k]) == 0)
                    *reinterpret_cast<Bits*>(address((first + k) * WARP + lane())) = 0;
            }
        }
        return word;
    }

    // This lane's word, read from bits [units], in which no value that is 0 has its bit set.
    ZENC_DEVICE u64 picked(const u64* bits) const {
        u64 word = 0;
        for (u32 slot = 64 * lane(), end = slot + 64; slot < end && slot < slots_;) {
            const u64 unit = units_[slot >> shift_] + (slot & low_mask(shift_));
            const u32 run = (1U << shift_) - static_cast<u32>(slot & low_mask(shift_)), left = end - slot;
            u32 length = run < left ? run : left;
            if (slots_ - slot < length) length = static_cast<u32>(slots_ - slot);
            u64 found = bits[unit / 64] >> (unit % 64);
            if (unit % 64 + length > 64) found |= bits[unit / 64 + 1] << (64 - unit % 64);
            word |= (found & low_mask(length)) << (slot % 64);
            slot += length;
        }
        return word;
    }

private:
    T* tensor_;
    u64* units_;
    u64 slots_;
    u32 shift_;
};

// A window of whole runs of 64 at addresses of vectors: each value is read once, and those that are something
// are put aside in shared memory, in their order, as long as there is room.
template <class T>
class Stage {
public:
    using Bits = typename Arithmetic<T>::Bits;
    static constexpr u32 EACH = sizeof(uint4) / sizeof(Bits);               // values of a vector
    static constexpr u32 ROOM = STAGED_BYTES / sizeof(Bits) - EACH * WARP;  // what is behind it is not kept

    // A warp's stage: STAGED_BYTES at `values`, and a word a lane at `words`.
    ZENC_DEVICE Stage(void* values, u64* words) : values_(shared_address(values)), words_(words) {}

    // The first vector of this lane's run, or ~0 unless all lanes have a whole run at an address of vectors.
    template <class Mapping>
    ZENC_DEVICE static u32 vector_of_run(const Geometry<Mapping>& geometry, u64 part, u64 begin, u64 slots,
                                         const T* tensor) {
        if (run_shift(geometry.mapping) != 6 || begin + WINDOW > slots || geometry.units / EACH >> 32 != 0)
            return ~0U;
        const u64 unit = geometry.mapping.unit(geometry.first_slot(part) + begin + 64 * lane());
        const bool odd = address_bits(tensor + unit) % sizeof(uint4) != 0;
        return __any_sync(ALL_LANES, odd) || address_bits(tensor) % sizeof(uint4) != 0
                   ? ~0U
                   : static_cast<u32>(unit / EACH);
    }

    // This lane's word, as Window::mark makes it.
    ZENC_DEVICE u64 mark(T* tensor, u32 vector_of_run, bool clears) {
        constexpr u32 STEPS = 8, VECTORS = WINDOW / EACH / WARP;
        const uint4* const vectors = reinterpret_cast<const uint4*>(tensor);
        SharedAddress next = values_, byte = shared_address(words_) + lane() * EACH / 8;
        __syncwarp();
#pragma unroll 1
        for (u32 first = 0; first < VECTORS; first += STEPS) {
            uint4 loaded[STEPS];
            Bits zeros = 0;
#pragma unroll
            for (u32 k = 0; k < STEPS; ++k) loaded[k] = load_once(vectors + at(vector_of_run, first + k));
#pragma unroll
            for (u32 k = 0; k < STEPS; ++k) {
                const u32 bits = put_aside(__builtin_bit_cast(Vector, loaded[k]), next, zeros);
                if (EACH >= 8 || lane() % (8 / EACH) == 0) store_shared(byte, static_cast<u8>(bits));
                byte += WARP * EACH / 8;
            }
            if (clears && __any_sync(ALL_LANES, zeros != 0)) clear(tensor, vector_of_run, first, STEPS);
        }
        __syncwarp();
        return words_[lane()];
    }

    ZENC_DEVICE T value(u32 i) const { return load_shared<T>(values_ + i * static_cast<u32>(sizeof(T))); }

private:
    struct alignas(sizeof(uint4)) Vector {
        Bits of[EACH];
    };

    // The place of this lane's vector number `step`, of which all lanes have one.
    ZENC_DEVICE static u32 at(u32 vector_of_run, u32 step) {
        constexpr u32 LANES = 64 / EACH;
        const u32 run = step * WARP / LANES + lane() / LANES;
        return __shfl_sync(ALL_LANES, vector_of_run, static_cast<int>(run)) + lane() % LANES;
    }

    ZENC_DEVICE static bool is(Bits bits) { return magnitude_bits(bits) != 0; }

    // Puts the values that are something at `next`, lane by lane. Returns a bit for each value of this lane
    // and of the lanes behind it, up to 8; the other values are or-ed into `zeros`.
    ZENC_DEVICE u32 put_aside(const Vector& vector, SharedAddress& next, Bits& zeros) const {
        const u32 below = (1U << lane()) - 1;
        SharedAddress to = next;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i)
            to += static_cast<u32>(sizeof(Bits)) *
                  static_cast<u32>(__popc(__ballot_sync(ALL_LANES, is(vector.of[i])) & below));
        u32 bits = 0;
#pragma unroll
        for (u32 i = 0; i < EACH; ++i) {
            if (is(vector.of[i])) {
                store_shared(to, vector.of[i]);
                to += sizeof(Bits);
                bits |= 1U << i;
            } else {
                zeros |= vector.of[i];
            }
        }
        const SharedAddress end = values_ + ROOM * sizeof(Bits), all = __shfl_sync(ALL_LANES, to, WARP - 1);
        next = all < end ? all : end;
#pragma unroll
        for (u32 have = EACH; have < 8; have *= 2)
            bits |= __shfl_down_sync(ALL_LANES, bits, have / EACH) << have;
        return bits;
    }

    // Turns each -0 of some vectors into +0.
    ZENC_DEVICE static void clear(T* tensor, u32 vector_of_run, u32 first, u32 steps) {
#pragma unroll 1
        for (u32 k = first; k < first + steps; ++k) {
            Bits* const values =
                reinterpret_cast<Bits*>(tensor) + static_cast<u64>(at(vector_of_run, k)) * EACH;
#pragma unroll 1
            for (u32 i = 0; i < EACH; ++i)
                if (!is(values[i])) values[i] = 0;
        }
    }

    SharedAddress values_;
    u64* words_;
};

// Bitmap, ranks and values of all parts, as many values as parts[p].count, none where parts[p].values are
// null; each is divided by `divisor` first. Row y of the grid has part y, and counts in the words from work +
// y * work_words on, which are 0 before: 1 + tiles_of_words(slots) of them. If it `clears`, each -0 of the
// tensor becomes +0. Where bits say what is `taken` nothing else is read.
template <class T, class Mapping>
ZENC_DEVICE void pack_values(const Geometry<Mapping>& geometry, const Segment* parts, T* tensor, i64 dtype,
                             i64 divisor, bool clears, const u64* taken, u64* work, u64 work_words) {
    ZENC_SHARED(u64, memory, WARPS * (STAGED_BYTES / sizeof(u64)));
    ZENC_SHARED(u64, words, THREADS);
    const u32 warp = threadIdx.x / WARP;
    u64* const mine = memory + warp * (STAGED_BYTES / sizeof(u64));
    const Divided<T> divided(dtype, divisor);
    for_each_segment(geometry.parts, [&](u64 part) {
        const Segment& to = parts[part];
        u64* const counter = work + part * work_words;
        for (u64 tile; (tile = draw_tile(counter)) * THREADS < words_ranked(to.slots);) {
            const u64 first = tile * THREADS + warp * WARP;
            Stage<T> stage(mine, words + warp * WARP);
            const u32 vector = taken != nullptr
                                   ? ~0U
                                   : Stage<T>::vector_of_run(geometry, part, 64 * first, to.slots, tensor);
            u64 word;
            if (vector != ~0U) {
                word = stage.mark(tensor, vector, clears);
            } else {
                const Window<T> window(geometry, part, 64 * first, to.slots, tensor, mine);
                word = taken != nullptr ? window.picked(taken) : window.mark(clears);
            }
            const u64 before = store_words(to, first + lane(), word, tile, counter + 1);
            if (to.values == nullptr || before >= to.count) continue;
            T* const values = static_cast<T*>(to.values) + before;
            const u64 room = to.count - before;
            WindowRows batch(first, word, before);
            if (vector != ~0U && batch.all() <= Stage<T>::ROOM) {
                for (u32 i = lane(); i < batch.all() && i < room; i += WARP)
                    values[i] = divided(stage.value(i));
                continue;
            }
            const Window<T> window(geometry, part, 64 * first, to.slots, tensor, mine);
            while (batch.next() && batch.cut(to.count))
                if (batch.has_row())
                    static_cast<T*>(to.values)[batch.first + lane()] =
                        divided(*window.address(64 * (batch.word - first) + batch.bit));
        }
        __syncthreads();  // the next part may draw
    });
}

}  // namespace zenc
