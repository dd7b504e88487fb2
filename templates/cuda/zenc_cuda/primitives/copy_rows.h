// Moving rows, by a warp: up to 32 at a time, of which lane k knows where row k comes from and goes to.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/primitives/search.h"

namespace zenc {

constexpr u32 AHEAD = 4;  // loads of a lane that are under way together

ZENC_DEVICE u64 address_bits(const void* of) {
    return reinterpret_cast<u64>(of);
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
    if (vectors == 1) {
        if (lane() < rows && to != nullptr) *to = change(from == nullptr ? Vector{} : load_once(from));
        return;
    }
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

template <class Vector>
ZENC_DEVICE void copy_vectors(const u8* from, u32 rows, u64 row_bytes, u8* to) {
    move_rows(reinterpret_cast<const Vector*>(from), rows, row_bytes / sizeof(Vector),
              reinterpret_cast<Vector*>(to), [](Vector vector) { return vector; });
}

// In vectors of 16, 4 or 2 bytes, as many as divide the size of a row and the addresses of all of them: a
// tensor may begin at any of its values, and no GPU loads or stores at other addresses than multiples of the
// size.
ZENC_DEVICE void copy_rows(const u8* from, u32 rows, u64 row_bytes, u8* to) {
    const u64 together = lane() < rows ? row_bytes | address_bits(from) | address_bits(to) : 0;
    if (!__any_sync(ALL_LANES, together % 16 != 0))
        copy_vectors<uint4>(from, rows, row_bytes, to);
    else if (!__any_sync(ALL_LANES, together % 4 != 0))
        copy_vectors<u32>(from, rows, row_bytes, to);
    else
        copy_vectors<u16>(from, rows, row_bytes, to);
}

// Rows of `width` values, each divided first; a divisor of 1 copies the bits.
template <class T>
ZENC_DEVICE void divide_rows(const T* from, u32 rows, u64 width, i64 divisor, T* to) {
    using Sum = typename Type<T>::Sum;
    if (divisor == 1)
        return copy_rows(reinterpret_cast<const u8*>(from), rows, width * sizeof(T),
                         reinterpret_cast<u8*>(to));
    const Sum by = static_cast<Sum>(divisor);
    move_rows(from, rows, width, to, [=](T value) { return Type<T>::round(Type<T>::widen(value) / by); });
}

}  // namespace zenc
