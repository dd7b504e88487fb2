// Moving rows: those that end one behind another are copied as one piece, by `copy_rows`; those that end
// anywhere, by groups of lanes, and divided, by `RowMover`.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/primitives/search.h"

namespace zenc {

ZENC_DEVICE u64 address_bits(const void* of) {
    return reinterpret_cast<u64>(of);
}

template <class T>
ZENC_DEVICE T* shuffle(T* from, u32 of_lane) {
    const u64 address = reinterpret_cast<u64>(from);
    return reinterpret_cast<T*>(__shfl_sync(ALL_LANES, address, static_cast<int>(of_lane)));
}

// The bytes of the chunks that a warp copies in: 8, 4 or 2, as many as divide `together` in all lanes, which
// is the size of a row and the addresses where it lies and goes. A tensor may begin at any of its values, and
// no GPU loads or stores at other addresses than multiples of the size.
ZENC_DEVICE u32 chunk_bytes(u64 together) {
    if (!__any_sync(ALL_LANES, together % 8 != 0)) return 8;
    return __any_sync(ALL_LANES, together % 4 != 0) ? 2 : 4;
}

template <class Chunk>
ZENC_DEVICE void copy_chunks(const Chunk* from, u32 rows, u64 chunks, Chunk* to) {
    if (chunks < WARP) {
        const u32 each = static_cast<u32>(chunks), all = rows * each;
        for (u32 i = lane(); i - lane() < all; i += WARP) {
            const u32 row = each == 1 ? i : i / each;  // no division for single values
            const Chunk* const source = shuffle(from, row % WARP);
            if (i < all) to[i] = source == nullptr ? Chunk{0} : source[i - row * each];
        }
        return;
    }
    for (u32 row = 0; row < rows; ++row, to += chunks) {
        const Chunk* const source = shuffle(from, row);
        for (u64 i = lane(); i < chunks; i += WARP) to[i] = source == nullptr ? Chunk{0} : source[i];
    }
}

// Writes `rows` <= 32 rows, one after another from `to` on: lane k knows where row k comes from. A row from
// nowhere is +0.
ZENC_DEVICE void copy_rows(const u8* from, u32 rows, u64 row_bytes, u8* to) {
    const u32 chunk = chunk_bytes(row_bytes | address_bits(from) | address_bits(to));
    if (chunk == 8)
        copy_chunks(reinterpret_cast<const u64*>(from), rows, row_bytes / 8, reinterpret_cast<u64*>(to));
    else if (chunk == 4)
        copy_chunks(reinterpret_cast<const u32*>(from), rows, row_bytes / 4, reinterpret_cast<u32*>(to));
    else
        copy_chunks(reinterpret_cast<const u16*>(from), rows, row_bytes / 2, reinterpret_cast<u16*>(to));
}

template <class Chunk>
ZENC_DEVICE void scatter_chunks(const Chunk* from, u32 rows, u64 chunks, Chunk* to) {
    if (chunks < WARP) {
        const u32 each = static_cast<u32>(chunks), all = rows * each;
        for (u32 i = lane(); i - lane() < all; i += WARP) {
            const u32 row = each == 1 ? i : i / each;
            Chunk* const target = shuffle(to, row % WARP);
            if (i < all) target[i - row * each] = from[i];
        }
        return;
    }
    for (u32 row = 0; row < rows; ++row, from += chunks) {
        Chunk* const target = shuffle(to, row);
        for (u64 i = lane(); i < chunks; i += WARP) target[i] = from[i];
    }
}

// The reverse: `rows` <= 32 rows, one after another from `from` on, go to where lane k knows of row k.
ZENC_DEVICE void scatter_rows(const u8* from, u32 rows, u64 row_bytes, u8* to) {
    const u32 chunk = chunk_bytes(row_bytes | address_bits(from) | address_bits(to));
    if (chunk == 8)
        scatter_chunks(reinterpret_cast<const u64*>(from), rows, row_bytes / 8, reinterpret_cast<u64*>(to));
    else if (chunk == 4)
        scatter_chunks(reinterpret_cast<const u32*>(from), rows, row_bytes / 4, reinterpret_cast<u32*>(to));
    else
        scatter_chunks(reinterpret_cast<const u16*>(from), rows, row_bytes / 2, reinterpret_cast<u16*>(to));
}

// Lanes of a warp that work on one row together: as few as take it in one round of STEPS vectors each, so
// that several loads of each lane are under way.
struct Group {
    static constexpr u32 STEPS = 4;

    u32 size = 1;  // a power of two

    ZENC_DEVICE explicit Group(u64 vectors) {
        while (size < WARP && size * STEPS < vectors) size *= 2;
    }

    ZENC_DEVICE u32 in_warp() const { return WARP / size; }
    ZENC_DEVICE u32 index() const { return lane() / size; }
    ZENC_DEVICE u32 rank() const { return lane() % size; }
    ZENC_DEVICE u32 mask() const { return ALL_LANES >> (WARP - size) << (lane() - rank()); }
};

// A group copies n vectors.
template <class Vector>
ZENC_DEVICE void copy_vectors(const Group& group, const Vector* from, u64 n, Vector* to) {
    for (u64 at = group.rank(); at < n; at += group.size * Group::STEPS) {
        Vector vectors[Group::STEPS];
        for (u32 k = 0; k < Group::STEPS; ++k)
            if (at + k * group.size < n) vectors[k] = from[at + k * group.size];
        for (u32 k = 0; k < Group::STEPS; ++k)
            if (at + k * group.size < n) to[at + k * group.size] = vectors[k];
    }
}

// Moves rows of one table, each divided first; a divisor of 1 copies the bits. Rows go in whole words where
// the table and its rows have them: values of segments always begin at one.
template <class T>
class RowMover {
    using Bits = typename Type<T>::Bits;
    using Sum = typename Type<T>::Sum;

public:
    ZENC_DEVICE RowMover(const T* table, u64 width, i64 divisor)
        : width_(width),
          words_(width * sizeof(T) / 8),
          divisor_(static_cast<Sum>(divisor)),
          in_words_(divisor == 1 && (width * sizeof(T) | reinterpret_cast<u64>(table)) % 8 == 0),
          group(in_words_ ? words_ : width) {}

    // visit(k) for k < n by one group, or for some k >= n; all lanes of a warp visit equally often.
    template <class Visit>
    ZENC_DEVICE void for_each(u32 n, Visit visit) const {
        for (u32 k = group.index(); k - group.index() < n; k += group.in_warp()) visit(k);
    }

    // One row, by all lanes of a group.
    ZENC_DEVICE void move(const T* from, T* to) const {
        if (in_words_)
            copy_vectors(group, reinterpret_cast<const u64*>(from), words_, reinterpret_cast<u64*>(to));
        else if (divisor_ == 1)
            copy_vectors(group, reinterpret_cast<const Bits*>(from), width_, reinterpret_cast<Bits*>(to));
        else
            for (u64 i = group.rank(); i < width_; i += group.size)
                to[i] = Type<T>::round(Type<T>::widen(from[i]) / divisor_);
    }

private:
    u64 width_;
    u64 words_;
    Sum divisor_;
    bool in_words_;

public:
    const Group group;
};

}  // namespace zenc
