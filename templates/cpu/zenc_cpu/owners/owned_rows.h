// Gradients under `balanced by holders`, once the owners are chosen (owners.h): cut in parts, and put
// together again. Rows are moved as bytes: all types share this code.
#pragma once

#include "zenc_cpu/owners/owners.h"

namespace zenc {

// The slots that each rank occupies in each part. outs [ranks, ranks]: for rank k and part p, at k * ranks +
// p, the address of a cleared bitmap of words_of(units of owner p) words, or null where nobody asks for it.
// Returns 0 or NO_MEMORY.
inline i64 mark_parts(u64 ranks, const u64* const* bitmaps, u64 words, const u16* owners, u64* const* outs) {
    const Scratch<u64> next(ranks);  // the slot of the next unit of each part
    if (next.failed()) return NO_MEMORY;
    u64 parts[64];
    u64 slots[64];
    for (u64 w = 0; w < words; ++w) {
        u64 any = 0;
        for (u64 k = 0; k < ranks; ++k) any |= bitmaps[k][w];
        for_each_bit(any, [&](u64 bit) {
            parts[bit] = *owners++;
            slots[bit] = next[parts[bit]]++;
        });
        for (u64 k = 0; any != 0 && k < ranks; ++k)
            for_each_bit(bitmaps[k][w], [&](u64 bit) {
                u64* const out = outs[k * ranks + parts[bit]];
                if (out != nullptr) out[slots[bit] / 64] |= 1ULL << (slots[bit] % 64);
            });
    }
    return 0;
}

// A number of bytes that the compiler knows.
template <u64 BYTES>
struct Exactly {
    constexpr operator u64() const { return BYTES; }
};

// run(row_bytes), as a constant where a row is one value, which is then moved by one instruction.
template <class Run>
inline i64 with_row_bytes(u64 row_bytes, Run run) {
    if (row_bytes == 2) return run(Exactly<2>{});
    if (row_bytes == 4) return run(Exactly<4>{});
    if (row_bytes == 8) return run(Exactly<8>{});
    return run(row_bytes);
}

// Where the next row, or whatever else comes in order, of each part is read or written.
template <class Byte>
class Cursors {
public:
    Cursors(u64 parts, Byte* const* starts) : at_(parts) {
        if (!failed()) copy_bytes(at_.get(), starts, parts * sizeof(Byte*));
    }

    bool failed() const { return at_.failed(); }

    Byte* next(u64 part, u64 row_bytes) const {
        Byte* const row = at_[part];
        at_[part] += row_bytes;
        return row;
    }

private:
    Scratch<Byte*> at_;
};

// One rank's rows [count, row_bytes] of the units in `own`, ascending -> outs: for each part the address of
// its rows. `any` are the units that somebody holds. Returns 0 or NO_MEMORY.
inline i64 split_rows(const u64* any, const u64* own, u64 words, const u16* owners, u64 parts,
                      const u8* values, u64 row_bytes, u8* const* outs) {
    const Cursors<u8> cursors(parts, outs);
    if (cursors.failed()) return NO_MEMORY;
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 w = 0; w < words; owners += population(any[w++]))
            for_each_bit(own[w], [&](u64 bit) {
                const u16 owner = owners[population(any[w] & low_mask(bit))];
                copy_short(cursors.next(owner, bytes), values, bytes);
                values += bytes;
            });
        return 0;
    });
}

// The units that somebody holds as a list, ascending, and for each part which of them are its slots: their
// numbers, to outs [parts]. units_out [count]. Returns count or NO_MEMORY.
inline i64 list_units(const u64* any, u64 words, const u16* owners, u64 parts, i64* units_out,
                      u64* const* outs) {
    const Cursors<u64> cursors(parts, outs);
    if (cursors.failed()) return NO_MEMORY;
    u64 count = 0;
    for (u64 w = 0; w < words; ++w)
        for_each_bit(any[w], [&](u64 bit) {
            units_out[count] = static_cast<i64>(64 * w + bit);
            *cursors.next(owners[count], 1) = count;
            ++count;
        });
    return static_cast<i64>(count);
}

// The rows of one part, whole, to their places among those of all units. numbers [count], out [units of the
// union, row_bytes]. Returns 0.
inline i64 place_rows(const u64* numbers, u64 count, const u8* values, u64 row_bytes, u8* out) {
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 i = 0; i < count; ++i) copy_short(out + numbers[i] * bytes, values + i * bytes, bytes);
        return 0;
    });
}

// The rows of all parts, whole, to their places in a dense tensor out [units, row_bytes]; units that nobody
// holds stay as they are.
// Returns 0 or NO_MEMORY.
inline i64 join_dense(const u64* any, u64 units, const u16* owners, u64 parts, const u8* const* part_values,
                      u64 row_bytes, u8* out) {
    const Cursors<const u8> cursors(parts, part_values);
    if (cursors.failed()) return NO_MEMORY;
    return with_row_bytes(row_bytes, [&](auto bytes) -> i64 {
        for (u64 w = 0; w < words_of(units); ++w)
            for_each_bit(any[w], [&](u64 bit) {
                copy_short(out + (64 * w + bit) * bytes, cursors.next(*owners++, bytes), bytes);
            });
        return 0;
    });
}

}  // namespace zenc
