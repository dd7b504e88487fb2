// Single elements under a permutation, block by block. A block is an unsigned integer of as many bits as it
// has elements: whole bytes of the bitmap.
#pragma once

#include "zenc_cpu/primitives/lanes.h"
#include "zenc_cpu/primitives/places.h"

namespace zenc {

template <class Block>
constexpr u64 UNITS_OF = 8 * sizeof(Block);

// run(Block()) with the integer that a block is. Single elements have no smaller ones than LEAST_BLOCK.
template <class Run>
inline auto with_block(const Geometry<Permutation>& geometry, Run run) {
    switch (geometry.mapping.block()) {
        case 8:
            return run(u8());
        case 16:
            return run(u16());
        case 32:
            return run(u32());
        default:
            return run(u64());
    }
}

template <class Block>
inline Block load_block(const u64* bitmap, u64 bit) {
    Block block;
    std::memcpy(&block, reinterpret_cast<const u8*>(bitmap) + bit / 8, sizeof block);
    return block;
}

template <class Block>
inline void store_block(u64* bitmap, u64 bit, Block block) {
    std::memcpy(reinterpret_cast<u8*>(bitmap) + bit / 8, &block, sizeof block);
}

// visit(unit, n, parts, bits) for n blocks from `unit` on, in the order of the tensor: the part of each, and
// the number of its first bit in the bitmap of all parts. The last block of the tensor may be short.
template <class Visit>
inline void for_each_block(const Geometry<Permutation>& geometry, Visit visit) {
    const u64 block = geometry.mapping.block();
    const u64 blocks = ceil_divide(geometry.units, block);
    u64 units[MOST_IN_BATCH], slots[MOST_IN_BATCH], parts[MOST_IN_BATCH], bits[MOST_IN_BATCH];
    for (u64 first = 0; first < blocks; first += BATCH) {
        const u64 n = blocks - first < BATCH ? blocks - first : BATCH;
        for (u64 i = 0; i < n; ++i) units[i] = (first + i) * block;
        slots_of_batch(geometry.mapping, units, n, slots);
        locate(geometry, slots, n, parts, bits);
        visit(first * block, n, parts, bits);
    }
}

// visit(blocks, units, n) for n blocks of a part, in the order of their slots: of EVERY block, or of those
// with any bit. units [n] are the first ones of each.
template <bool EVERY, class Block, class Visit>
inline void for_each_block_of(const Geometry<Permutation>& geometry, u64 part, const u64* bitmap,
                              Visit visit) {
    const u64 end = geometry.slots_of(part);
    const u64* const words = bitmap + part * geometry.part_words;
    u64 slots[MOST_IN_BATCH], units[MOST_IN_BATCH];
    Block blocks[BATCH];
    for (u64 slot = 0; slot < end;) {
        u64 n = 0;
        for (; slot < end && n < BATCH; slot += UNITS_OF<Block>) {
            slots[n] = geometry.first_slot(part) + slot;
            blocks[n] = load_block<Block>(words, slot);
            n += EVERY || blocks[n] != 0;  // a branch would be mispredicted
        }
        units_of_batch(geometry.mapping, slots, n, units);
        visit(blocks, units, n);
    }
}

// to = the values of the set bits of a block, one after another; no others are read.
template <class T, class Block>
inline void keep_values(const T* from, Block block, T* to) {
#if ZENC_LANES
    using L = MovedLanes<sizeof(T)>;
#pragma GCC unroll 8
    for (u64 first = 0; first < UNITS_OF<Block>; first += L::NUMBER) {
        const auto mask = static_cast<typename L::Mask>(block >> first);
        to += L::keep(from + first, mask, to);
    }
#else
    for_each_bit(block, [&](u64 bit) { *to++ = from[bit]; });
#endif
}

// to [elements of a block] = the values of the set bits, which stand one after another, and +0 elsewhere.
template <class T, class Block>
inline void spread_values(const T* from, Block block, T* to) {
#if ZENC_LANES
    using L = MovedLanes<sizeof(T)>;
    constexpr u64 UNITS = UNITS_OF<Block>;
#pragma GCC unroll 8
    for (u64 first = 0; first < UNITS; first += L::NUMBER) {
        const auto mask = static_cast<typename L::Mask>(block >> first);
        from += L::spread(from, mask, static_cast<typename L::Mask>(low_mask(UNITS)), to + first);
    }
#else
    clear_bytes(to, UNITS_OF<Block> * sizeof(T));
    for_each_bit(block, [&](u64 bit) { to[bit] = *from++; });
#endif
}

}  // namespace zenc
