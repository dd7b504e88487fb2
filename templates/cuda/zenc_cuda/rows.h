// Rows of segments, up to 32 at a time for a warp: where they are, and how they are moved.
#pragma once

#include "zenc/geometry.h"
#include "zenc/values.h"
#include "zenc_cuda/slots.h"

namespace zenc {

// Lane k holds row number k of a batch, if there is one.
class Batch {
public:
    u64 first = 0;  // row of lane 0
    u32 rows = 0;   // of the batch; the same for all lanes
    u64 word = 0;   // where this lane's row has its bit
    u32 bit = 0;

    ZENC_DEVICE bool has_row() const { return lane() < rows; }
    ZENC_DEVICE u64 slot() const { return 64 * word + bit; }

    // Leaves out rows from number `end` on; whether there is one below it.
    ZENC_DEVICE bool cut(u64 end) {
        if (end <= first) return false;
        if (end - first < rows) rows = static_cast<u32>(end - first);
        return true;
    }

protected:
    // The next 32 rows of the words that lanes have, if any are left.
    ZENC_DEVICE bool next_of_words() {
        if (passed_ == held_) return false;
        rows = held_ - passed_ < WARP ? held_ - passed_ : WARP;
        locate(passed_ + lane());
        return true;
    }

    u64 begin_ = 0;   // word of lane 0
    u64 word_ = 0;    // this lane's
    u32 below_ = 0;   // rows of the lanes below
    u32 held_ = 0;    // rows of all lanes
    u32 passed_ = 0;  // of these

private:
    // Finds the bit of row i in these words; beyond the last row it does not matter.
    ZENC_DEVICE void locate(u32 i) {
        u32 owner = 0;
        for (u32 by = WARP / 2; by != 0; by /= 2)
            if (__shfl_sync(ALL_LANES, below_, static_cast<int>(owner + by)) <= i) owner += by;
        const u64 bits = __shfl_sync(ALL_LANES, word_, static_cast<int>(owner));
        word = begin_ + owner;
        bit = select_bit(bits, i - __shfl_sync(ALL_LANES, below_, static_cast<int>(owner)));
    }
};

// Goes through all rows of a segment in batches. Warps share narrow ones by words of the bitmap, and wide
// ones by their numbers, so that no warp has much more to copy than another.
class RowBatches : public Batch {
public:
    ZENC_DEVICE RowBatches(const Segment& segment, u64 row_bytes)
        : slots_(segment), words_a_warp_(words_a_warp(row_bytes)), next_(warp_of_row() * step()) {}

    // The next batch of this warp. All lanes call it together.
    ZENC_DEVICE bool next() { return words_a_warp_ == 0 ? next_by_number() : next_by_words(); }

private:
    ZENC_DEVICE u32 step() const { return words_a_warp_ == 0 ? WIDE_ROWS : words_a_warp_; }

    ZENC_DEVICE bool next_by_number() {
        const u64 all = slots_.words == 0 ? 0 : slots_.below(slots_.words);
        if (next_ >= all) return false;
        first = next_;
        next_ += warps_of_row() * step();
        rows = static_cast<u32>(all - first < WIDE_ROWS ? all - first : WIDE_ROWS);
        const u64 mine = first + (lane() < rows ? lane() : 0);
        word = slots_.word_of(mine, slots_.word_of_warp(first));
        bit = select_bit(slots_.bitmap[word], static_cast<u32>(mine - slots_.below(word)));
        return true;
    }

    ZENC_DEVICE bool next_by_words() {
        first += rows;
        passed_ += rows;
        while (passed_ == held_)
            if (!load_words()) return false;
        return next_of_words();
    }

    // This lane's word, and how many rows the lanes below have.
    ZENC_DEVICE bool load_words() {
        if (next_ >= slots_.words) return false;
        begin_ = next_;
        next_ += warps_of_row() * step();
        const u64 end = slots_.words - begin_ < step() ? slots_.words : begin_ + step();
        const u64 mine = begin_ + lane() < end ? begin_ + lane() : end;
        word_ = mine < end ? slots_.bitmap[mine] : 0;
        first = slots_.below(begin_);
        below_ = static_cast<u32>(slots_.below(mine) - first);
        held_ = static_cast<u32>(slots_.below(end) - first);
        passed_ = 0;
        return true;
    }

    const Slots slots_;
    const u32 words_a_warp_;
    u64 next_;  // the word or row that this warp takes then
};

// The rows of a window: lane k has its word number k, and `before` rows precede it.
class WindowRows : public Batch {
public:
    ZENC_DEVICE WindowRows(u64 begin, u64 word, u64 before) {
        begin_ = begin;
        word_ = word;
        first = before;
        const u32 mine = static_cast<u32>(population(word)), up_to = inclusive_in_warp(mine);
        below_ = up_to - mine;
        held_ = __shfl_sync(ALL_LANES, up_to, WARP - 1);
    }

    ZENC_DEVICE u32 all() const { return held_; }

    ZENC_DEVICE bool next() {
        first += rows;
        passed_ += rows;
        return next_of_words();
    }
};

// The number of the row that a segment has for a slot, or -1.
ZENC_DEVICE i64 row_of(const Segment& segment, u64 word, u32 bit) {
    const u64 bits = segment.bitmap[word];
    if ((bits >> bit & 1) == 0) return -1;
    return static_cast<i64>(Slots(segment).below(word) + population(bits & low_mask(bit)));
}

// The address of that row, or null.
ZENC_DEVICE const u8* address_of(const Segment& segment, u64 word, u32 bit, u64 row_bytes) {
    const i64 row = row_of(segment, word, bit);
    return row < 0 ? nullptr : static_cast<const u8*>(segment.values) + static_cast<u64>(row) * row_bytes;
}

// The row of a slot in the segments of all parts, or null.
template <class T, class Mapping>
ZENC_DEVICE T* row_of_slot(const Geometry<Mapping>& geometry, const Segment* parts, u64 slot, u64 row_bytes) {
    const u64 part = geometry.part_of(slot), local = slot - geometry.first_slot(part);
    const u8* const row = address_of(parts[part], local / 64, static_cast<u32>(local % 64), row_bytes);
    return reinterpret_cast<T*>(const_cast<u8*>(row));
}

// Values as kernels add and divide them: of 16 bits, f16 or bf16, of which each kernel learns when it runs.
template <class T>
struct Arithmetic {
    using Bits = typename Type<T>::Bits;
    using Sum = typename Type<T>::Sum;

    ZENC_DEVICE explicit Arithmetic(i64) {}
    ZENC_DEVICE Sum widen(T value) const { return Type<T>::widen(value); }
    ZENC_DEVICE T round(Sum value) const { return Type<T>::round(value); }
};

template <>
struct Arithmetic<u16> {
    using Bits = u16;
    using Sum = float;
    bool is_f16;

    ZENC_DEVICE explicit Arithmetic(i64 dtype) : is_f16(dtype == DTYPE_F16) {}
    ZENC_DEVICE Sum widen(u16 value) const {
        return is_f16 ? Type<f16>::widen({value}) : Type<bf16>::widen({value});
    }
    ZENC_DEVICE u16 round(Sum value) const {
        return is_f16 ? Type<f16>::round(value).bits : Type<bf16>::round(value).bits;
    }
};

// Values by a divisor, of which 1 keeps the bits.
template <class T>
struct Divided {
    Arithmetic<T> of;
    typename Arithmetic<T>::Sum by;
    bool alike;

    ZENC_DEVICE Divided(i64 dtype, i64 divisor)
        : of(dtype), by(static_cast<typename Arithmetic<T>::Sum>(divisor)), alike(divisor == 1) {}
    ZENC_DEVICE T operator()(T value) const { return alike ? value : of.round(of.widen(value) / by); }
};

// Moving rows, by a warp: up to 32 at a time, of which lane k knows where row k comes from and goes to.

constexpr u32 AHEAD = 4;  // loads of a lane that are under way together

ZENC_DEVICE u64 address_bits(const void* of) {
    return reinterpret_cast<u64>(of);
}

// N values that follow each other, as a lane loads and stores them.
template <class T, u32 N>
struct alignas(N * sizeof(T)) Columns {
    T of[N];

    ZENC_DEVICE static Columns load(const T* from) {
        if constexpr (sizeof(Columns) == sizeof(uint4))
            return __builtin_bit_cast(Columns, load_once(reinterpret_cast<const uint4*>(from)));
        else
            return load_once(reinterpret_cast<const Columns*>(from));
    }

    ZENC_DEVICE void store(T* to) const { *reinterpret_cast<Columns*>(to) = *this; }

    // Past the caches, by 8 or 16 bytes: where these fit.
    ZENC_DEVICE static bool fit(const T* at) {
        return address_bits(at) % (sizeof(Columns) == 8 ? 8 : 16) == 0;
    }

    ZENC_DEVICE void stream(T* to) const {
        if constexpr (sizeof(Columns) == 8) {
            __stcs(reinterpret_cast<uint2*>(to), __builtin_bit_cast(uint2, *this));
        } else {
            struct Vectors {
                uint4 of[sizeof(Columns) / 16];
            };
            const auto vectors = __builtin_bit_cast(Vectors, *this);
#pragma unroll
            for (u32 k = 0; k < sizeof(Columns) / 16; ++k)
                __stcs(reinterpret_cast<uint4*>(to) + k, vectors.of[k]);
        }
    }
};

// Whether arrays, or null, begin where vectors of 16 bytes do.
template <class... Arrays>
ZENC_DEVICE bool in_vectors(const Arrays*... arrays) {
    return (address_bits(arrays) | ...) % sizeof(uint4) == 0;
}

// visit(first) for the numbers below n, N at a time, by all threads of the row.
template <u32 N, class Visit>
ZENC_DEVICE void for_each_vector(u64 n, Visit visit) {
    for (u64 i = thread_of_row() * N; i < n; i += threads_of_row() * N) visit(i);
}

// several(first) for N numbers below n at a time while `whole`, and one(number) for each of the others.
template <u32 N, class Several, class One>
ZENC_DEVICE void for_all_values(u64 n, bool whole, Several several, One one) {
    const u64 vectors = whole ? n / N * N : 0;
    for_each_vector<N>(vectors, several);
    for_each_vector<1>(n - vectors, [&](u64 i) { one(vectors + i); });
}

template <class T>
ZENC_DEVICE T* shuffle(T* from, u32 of_lane) {
    const u64 address = reinterpret_cast<u64>(from);
    return reinterpret_cast<T*>(__shfl_sync(ALL_LANES, address, static_cast<int>(of_lane)));
}

// Lanes of a warp that work on one row together: as few as take it in one round of AHEAD vectors each.
struct Group {
    u32 size = 1;  // a power of two

    ZENC_DEVICE explicit Group(u64 vectors) {
        while (size < WARP && size * AHEAD < vectors) size *= 2;
    }

    ZENC_DEVICE u32 in_warp() const { return WARP / size; }
    ZENC_DEVICE u32 index() const { return lane() / size; }
    ZENC_DEVICE u32 rank() const { return lane() % size; }
    ZENC_DEVICE u32 mask() const { return ALL_LANES >> (WARP - size) << (lane() - rank()); }
};

// A row from nowhere is all 0, and one to nowhere stays.
template <class Vector, class Change>
ZENC_DEVICE void move_rows(const Vector* from, u32 rows, u64 vectors, Vector* to, Change change) {
    const Group group(vectors);
#pragma unroll 1  // such loops are in many kernels
    for (u32 first = 0; first < rows; first += group.in_warp()) {
        const u32 row = first + group.index();
        const Vector* const source = shuffle(from, row % WARP);
        Vector* const target = shuffle(to, row % WARP);
        const u64 end = row < rows && target != nullptr ? vectors : 0;
#pragma unroll 1
        for (u64 at = group.rank(); at < end; at += AHEAD * group.size) {
            Vector loaded[AHEAD];
            for (u32 k = 0; k < AHEAD; ++k)
                if (source == nullptr)
                    loaded[k] = Vector{};
                else if (at + k * group.size < end)
                    loaded[k] = load_once(source + at + k * group.size);
            for (u32 k = 0; k < AHEAD; ++k)
                if (at + k * group.size < end) target[at + k * group.size] = change(loaded[k]);
        }
    }
}

// Rows are copied in vectors of 16, 4 or 2 bytes, as many as divide the size of a row and the addresses of
// all of them: a tensor may begin at any of its values, and no GPU loads or stores at other addresses than
// multiples of the size.
ZENC_DEVICE void copy_rows(const u8* from, u32 rows, u64 row_bytes, u8* to) {
    const auto move = [&](auto vector) {
        using Vector = decltype(vector);
        move_rows(reinterpret_cast<const Vector*>(from), rows, row_bytes / sizeof(Vector),
                  reinterpret_cast<Vector*>(to), [](Vector each) { return each; });
    };
    const u64 together = lane() < rows ? row_bytes | address_bits(from) | address_bits(to) : 0;
    if (!__any_sync(ALL_LANES, together % 16 != 0))
        move(uint4{});
    else if (!__any_sync(ALL_LANES, together % 4 != 0))
        move(u32{});
    else
        move(u16{});
}

// Rows of values, each divided first.
template <class T>
ZENC_DEVICE void divide_rows(const T* from, u32 rows, u64 width, const Divided<T>& divided, T* to) {
    if (divided.alike)
        copy_rows(reinterpret_cast<const u8*>(from), rows, width * sizeof(T), reinterpret_cast<u8*>(to));
    else
        move_rows(from, rows, width, to, divided);
}

}  // namespace zenc
