// Rows: how lanes share them, and how they are moved and divided.
#pragma once

#include "zenc/values.h"
#include "zenc_cuda/search.h"

namespace zenc {

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
