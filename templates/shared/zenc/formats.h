// The bytes that travel, agreed between all ranks and targets: how a segment's index part is laid out.
//
//     message = MessageHeader, SegmentHeader of every segment, body of every segment
//     body    = index, zeros up to a multiple of 8 bytes, values [count, width], zeros up to a multiple of 8
//     bytes
//
// dense:      no index; every slot of the part is there
//
// coo:        the occupied local slots, ascending; 4 bytes each for parts of up to 2^32 slots, 8 beyond
//
// bitmap:     bit b of word w = local slot 64 * w + b is occupied; ceil(slots / 64) words
//
// elias_fano: see EliasFano
//
// block(k):   bit b of word w = block 64 * w + b is there, with all of its slots; ceil(slots / k) bits. A
//             block is k slots, from a multiple of k on; the last one of the part may be short
//
// Everything is little endian.
#pragma once

#include "zenc/constants.h"

#if defined(__BYTE_ORDER__)
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "zenc's wire formats are little endian");
#endif

namespace zenc {

ZENC_HD inline u64 padded(u64 bytes) {
    return (bytes + 7) / 8 * 8;
}

ZENC_HD inline u64 words_of(u64 slots) {
    return slots / 64 + (slots % 64 != 0);
}

ZENC_HD inline u64 coo_index_bytes(u64 slots) {
    return slots <= (1ULL << 32) ? 4 : 8;
}

// The index that Elias (1974) and Fano (1971) found: the rarer kind of slots, occupied or absent, ascending.
// Of each slot the number of slots of the other kind below it is listed (slot - slots listed before: never
// descending, and of a smaller range than the slots themselves). The `low` lowest bits of these numbers stand
// one after another in `low_words` words, bit 0 of word 0 first. The `high_words` words behind have, for
// each, a bit set at (number >> low) + numbers listed before it. Unused bits are 0. Nothing is listed of an
// empty or a full part, which has no words.
struct EliasFano {
    bool absent;  // absent slots are listed
    u64 listed;
    u64 others;
    u64 low = 0;
    u64 low_words = 0;
    u64 high_words = 0;

    // The shape for count <= slots <= 2^62.
    ZENC_HD EliasFano(u64 slots, u64 count)
        : absent(count > slots - count),
          listed(absent ? slots - count : count),
          others(absent ? count : slots - count) {
        if (listed == 0) return;
        while (others >> (low + 1) >= listed) ++low;
        low_words = words_of(low_bits());
        high_words = words_of(high_bits());
    }

    ZENC_HD u64 low_bits() const { return listed * low; }
    ZENC_HD u64 high_bits() const { return listed == 0 ? 0 : listed + (others >> low); }
};

// The logarithm of k in block(k), for FORMAT_BLOCK <= format <= LAST_FORMAT.
ZENC_HD inline u64 block_shift(i64 format) {
    return static_cast<u64>(format - FORMAT_BLOCK) + 1;
}

// The bytes of the index part with its padding; 0 for a format that is not known.
ZENC_HD inline u64 index_bytes(i64 format, u64 slots, u64 count) {
    if (format == FORMAT_COO) return padded(count * coo_index_bytes(slots));
    if (format == FORMAT_BITMAP) return words_of(slots) * 8;
    if (format == FORMAT_ELIAS_FANO && count <= slots) {
        const EliasFano shape(slots, count);
        return (shape.low_words + shape.high_words) * 8;
    }
    if (format >= FORMAT_BLOCK && format <= LAST_FORMAT && slots != 0)
        return words_of(((slots - 1) >> block_shift(format)) + 1) * 8;
    return 0;
}

// Picoseconds of an index, at both ends together: zenc.wire.formats.FormatCosts.
struct FormatCosts {
    u64 byte, bitmap, search, coo, elias_fano;
};

// The cost of an index in coo, bitmap or elias_fano, for slots <= 2^40; its bytes where costs are not known.
ZENC_HD inline u64 index_cost(i64 format, u64 slots, u64 count, const FormatCosts& costs) {
    const u64 bytes = index_bytes(format, slots, count), words = words_of(slots);
    if (costs.byte == 0) return bytes;
    if (format == FORMAT_BITMAP) return bytes * costs.byte + words * costs.bitmap;
    const u64 listed = format == FORMAT_COO ? count : EliasFano(slots, count).listed;
    const u64 each = format == FORMAT_COO ? costs.coo : costs.elias_fano;
    return bytes * costs.byte + words * costs.search + listed * each;
}

struct WireLayout {
    i64 format;
    u64 index_bytes;
    u64 body_bytes;
};

// The layout of a segment of units of `unit_bytes` when a phase asks for a format: in that one; for
// FORMAT_AUTO in dense if it is full, else in the cheapest of coo, bitmap and elias_fano, or the first of
// equals.
ZENC_HD inline WireLayout wire_layout(i64 asked, u64 slots, u64 count, u64 unit_bytes, FormatCosts costs) {
    i64 format = asked;
    if (asked == FORMAT_AUTO) {
        format = count == slots ? FORMAT_DENSE : FORMAT_COO;
        for (i64 other = FORMAT_BITMAP; format != FORMAT_DENSE && other <= FORMAT_ELIAS_FANO; ++other)
            if (index_cost(other, slots, count, costs) < index_cost(format, slots, count, costs))
                format = other;
    }
    const u64 index = index_bytes(format, slots, count);
    return {format, index, index + padded(count * unit_bytes)};
}

// The most that the index of up to `most` units takes when a phase asks for a format. That of Elias and Fano
// has a bit a slot at most, in two pieces of whole words; what is cheapest no more than a cost pays for.
ZENC_HD inline u64 most_index_bytes(i64 asked, u64 slots, u64 most, FormatCosts costs) {
    if (asked == FORMAT_AUTO) {
        const u64 byte = costs.byte == 0 ? 1 : costs.byte;
        const u64 listed = index_cost(FORMAT_COO, slots, most, costs) / byte;
        const u64 marked = index_cost(FORMAT_BITMAP, slots, most, costs) / byte;
        return padded(listed < marked ? listed : marked);
    }
    return asked == FORMAT_ELIAS_FANO ? 8 * words_of(slots) + 8 : index_bytes(asked, slots, most);
}

// The layout for `room` units, of which only some may be there: where all is laid out before counts are
// known, full parts have an index too, and elias_fano, whose layout follows from the count, does not serve.
ZENC_HD inline WireLayout room_layout(i64 asked, u64 slots, u64 room, u64 unit_bytes, FormatCosts costs) {
    const u64 listed = index_cost(FORMAT_COO, slots, room, costs);
    const i64 smaller = listed < index_cost(FORMAT_BITMAP, slots, room, costs) ? FORMAT_COO : FORMAT_BITMAP;
    const bool free = asked == FORMAT_AUTO || asked == FORMAT_ELIAS_FANO;
    return wire_layout(free ? smaller : asked, slots, room, unit_bytes, costs);
}

}  // namespace zenc
