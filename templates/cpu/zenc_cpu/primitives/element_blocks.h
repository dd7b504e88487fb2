// Single elements of a dense tensor under a permutation, block by block. A block is an unsigned integer of as
// many bits as it has elements: whole bytes of a bitmap, which is an array of blocks. Tables say which block
// of the bitmap each block of the tensor goes to: they are made once for a tensor, and the permutation is not
// evaluated in a call.
#pragma once

#include "zenc/ranges.h"
#include "zenc_cpu/primitives/bits.h"
#include "zenc_cpu/primitives/lane_geometry.h"
#include "zenc_cpu/primitives/nonzero.h"

namespace zenc {

// A permutation with tables in memory of the caller; without them, of rows and of sparse tensors, null.
struct PermutedBlocks : Permutation {
    u32* places = nullptr;   // of each block of the tensor: the block of the bitmap of all parts
    u32* origins = nullptr;  // of each block of the bitmap: the block of the tensor

    PermutedBlocks(u64 seed, u64 units, u64 block, u64* tables = nullptr) : Permutation(seed, units, block) {
        if (tables == nullptr) return;
        places = reinterpret_cast<u32*>(tables);
        origins = places + ceil_divide(units, block);
    }
};

inline u64 blocks_of(const Geometry<PermutedBlocks>& geometry) {
    return ceil_divide(geometry.units, geometry.mapping.block());
}

// The 64-bit words of the tables, or OUT_OF_RANGE where blocks have no numbers of 32 bits.
inline i64 table_words(const Geometry<PermutedBlocks>& geometry) {
    const u64 in_bitmap = geometry.words() * 64 >> geometry.mapping.shift;
    return in_bitmap >> 32 ? OUT_OF_RANGE : static_cast<i64>(blocks_of(geometry) + in_bitmap + 1) / 2;
}

ZENC_SHARED_CODE inline void build_tables(const Geometry<PermutedBlocks>& geometry) {
    const u64 blocks = blocks_of(geometry), shift = geometry.mapping.shift;
    u64 units[MOST_IN_BATCH], slots[MOST_IN_BATCH], parts[MOST_IN_BATCH], bits[MOST_IN_BATCH];
    for (u64 first = 0; first < blocks; first += BATCH) {
        const u64 n = blocks - first < BATCH ? blocks - first : BATCH;
        for (u64 i = 0; i < n; ++i) units[i] = (first + i) << shift;
        slots_of_batch(geometry.mapping, units, n, slots);
        locate(geometry, slots, n, parts, bits);
        for (u64 i = 0; i < n; ++i) {
            geometry.mapping.places[first + i] = static_cast<u32>(bits[i] >> shift);
            geometry.mapping.origins[bits[i] >> shift] = static_cast<u32>(first + i);
        }
    }
}

template <class Block>
constexpr u64 UNITS_OF = 8 * sizeof(Block);

// run(Block()) with the integer that a block is. Single elements have no smaller ones than LEAST_BLOCK.
template <class Run>
inline void with_block(const Geometry<PermutedBlocks>& geometry, Run run) {
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

// Ranges of the tensor have words for blocks, whatever their lengths.
template <class Mapping, class Run>
inline void with_block(const Geometry<Mapping>&, Run run) {
    static_assert(Mapping::IS_IDENTITY, "units lie in the order of their slots");
    run(u64());
}

template <class Block>
inline void store_block(u64* bitmap, u64 number, Block block) {
    std::memcpy(reinterpret_cast<u8*>(bitmap) + number * sizeof block, &block, sizeof block);
}

// Up to 64 blocks, and which of them have any bit.
template <class Block>
struct FilledBlocks {
    u64 n;
    u32 numbers[64];
    Block blocks[64];

    FilledBlocks(const u64* words, u64 number_of_words) {
        const u64 all = number_of_words * 64 / UNITS_OF<Block>;
        std::memcpy(blocks, words, number_of_words * sizeof(u64));
        n = append_bits<4>(nonzero_word(blocks, all, static_cast<Block>(~Block{0})), 0, numbers);
    }
};

// The first element of a block of the bitmap.
template <class Block>
inline u64 unit_of_block(const Geometry<PermutedBlocks>& geometry, u64, u64 number) {
    return u64{geometry.mapping.origins[number]} * UNITS_OF<Block>;
}

// The first unit of a part that is a range of the tensor.
inline u64 first_unit(const Geometry<Contiguous>& geometry, u64 part) {
    return geometry.first_slot(part);
}

inline u64 first_unit(const Geometry<Ranges>& geometry, u64 part) {
    return geometry.mapping.firsts[part];
}

template <class Block, class Mapping>
inline u64 unit_of_block(const Geometry<Mapping>& geometry, u64 part, u64 number) {
    return first_unit(geometry, part) + (number - part * geometry.part_words) * 64;
}

// The end of a part's elements, of which the last block may be short.
inline u64 end_of_elements(const Geometry<PermutedBlocks>& geometry, u64) {
    return geometry.units;
}

template <class Mapping>
inline u64 end_of_elements(const Geometry<Mapping>& geometry, u64 part) {
    return first_unit(geometry, part) + geometry.slots_of(part);
}

// Whether single elements of a dense tensor are moved block by block.
template <class Mapping>
constexpr bool BY_BLOCKS = Mapping::IS_IDENTITY || !Mapping::HAS_TABLES;

// visit(units, blocks, n) for batches of the blocks of a part that have any bit, in the order of the bitmap;
// units [n] are the first ones of each. A batch lets the caller prefetch the elements that it will touch.
template <class Block, class Mapping, class Visit>
inline void for_filled_blocks(const Geometry<Mapping>& geometry, u64 part, const u64* bitmap, Visit visit) {
    constexpr u64 WORDS = UNITS_OF<Block>;  // of 64 blocks
    const u64 end = (part + 1) * geometry.part_words;
    u64 units[MOST_IN_BATCH];
    Block blocks[MOST_IN_BATCH];
    u64 n = 0;
    for (u64 w = part * geometry.part_words; w < end; w += WORDS) {
        const FilledBlocks<Block> filled(bitmap + w, end - w < WORDS ? end - w : WORDS);
        const u64 first = w * 64 / UNITS_OF<Block>;
        for (u64 i = 0; i < filled.n; ++i, ++n) {
            units[n] = unit_of_block<Block>(geometry, part, first + filled.numbers[i]);
            blocks[n] = filled.blocks[filled.numbers[i]];
        }
        if (n < BATCH) continue;
        visit(units, blocks, n);
        n = 0;
    }
    visit(units, blocks, n);
}

// to = the values of the set bits of a block, one after another; no others are read.
template <class T, class Block>
inline void keep_values(const T* from, Block block, T* to) {
#if ZENC_LANES
#pragma GCC unroll 8
    for (u64 first = 0; first < UNITS_OF<Block>; first += NUMBER_OF_LANES<T>) {
        const auto mask = static_cast<LaneMask<T>>(block >> first);
        to += keep_lanes(mask, Lanes<sizeof(T)>::load(mask, from + first), to);
    }
#else
    for_each_bit(block, [&](u64 bit) { *to++ = from[bit]; });
#endif
}

// to [elements of a block] = the values of the set bits, which stand one after another, and +0 elsewhere.
template <class T, class Block>
inline void spread_values(const T* from, Block block, T* to) {
#if ZENC_LANES
    const auto ALL = static_cast<LaneMask<T>>(low_mask(UNITS_OF<Block>));
#pragma GCC unroll 8
    for (u64 first = 0; first < UNITS_OF<Block>; first += NUMBER_OF_LANES<T>) {
        const auto mask = static_cast<LaneMask<T>>(block >> first);
        Lanes<sizeof(T)>::store(to + first, ALL, spread_lanes(_mm512_setzero_si512(), mask, from));
        from += population(mask);
    }
#else
    clear_bytes(to, UNITS_OF<Block> * sizeof(T));
    for_each_bit(block, [&](u64 bit) { to[bit] = *from++; });
#endif
}

}  // namespace zenc
