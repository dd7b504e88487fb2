// Integers by the range coder: a warp a chunk, of which one thread codes. Lengths are known when all chunks
// of a row are coded, and then these are moved together.
#pragma once

#include "zenc_cuda/compress/coded_rows.h"

namespace zenc {

// The integers of a chunk, which begins at value `first`.
struct ChunkNumbers {
    const Multiple<float>& of;
    u64 first;

    ZENC_DEVICE int operator[](u64 i) const { return static_cast<int>(of.number(first + i) - of.offset); }
};

ZENC_DEVICE u32* lengths_of(const CodedRow& row) {
    return reinterpret_cast<u32*>(row.bytes + CODED_HEADER);
}

// Returns the bytes in front of a chunk: all lengths, and the chunks before it.
ZENC_DEVICE u64 bytes_before(const CodedRow& row, u64 chunk) {
    u64 bytes = 0;
    for (u64 k = lane(); k < chunk; k += WARP) bytes += lengths_of(row)[k] & ~STORED;
    return CODED_HEADER + ceil_divide(row.n, CHUNK) * sizeof(u32) + sum_of_warp(bytes);
}

ZENC_DEVICE void pack_chunk(const Multiple<float>& of, u64 first, u64 n, u32 bits, u8* out) {
    for (u64 done = 0; done < n; done += PACKED_WINDOW) {
        pack_numbers(of, first + done, n - done, bits, out);
        out += packed_bytes(bits, PACKED_WINDOW);
    }
}

// Codes chunks into their rooms in `work`, and writes their lengths. The facts of rows are known.
ZENC_DEVICE void code_chunks(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        const u32 bits = static_cast<u32>(row.code.bits);
        const Multiple<float> of{static_cast<const float*>(row.values), step_exponent(row.facts),
                                 1U << (bits - 1)};
        for (u64 chunk = warp_of_row(); chunk * CHUNK < row.n; chunk += warps_of_row()) {
            const u64 first = chunk * CHUNK, numbers = row.n - first < CHUNK ? row.n - first : CHUNK;
            u8* const to = row.work + chunk * chunk_room(row.code);
            const u64 most = packed_bytes(bits, numbers);
            u64 coded = lane() == 0 ? encode_chunk(ChunkNumbers{of, first}, numbers, bits, to, most) : 0;
            coded = __shfl_sync(ALL_LANES, coded, 0);
            __syncwarp();  // what the first lane has tried is written before others write there
            if (coded == 0) pack_chunk(of, first, numbers, bits, to);
            if (lane() == 0)
                lengths_of(row)[chunk] =
                    coded != 0 ? static_cast<u32>(coded) : static_cast<u32>(most) | STORED;
        }
    });
}

// Moves chunks together behind their lengths, and writes what stands in front of these.
ZENC_DEVICE void join_chunks(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        const u64 chunks = ceil_divide(row.n, CHUNK);
        for (u64 chunk = warp_of_row(); chunk < chunks; chunk += warps_of_row()) {
            const u64 at = bytes_before(row, chunk), length = lengths_of(row)[chunk] & ~STORED;
            const u8* const from = row.work + chunk * chunk_room(row.code);
            for (u64 k = lane(); k < length; k += WARP) row.bytes[at + k] = from[k];
            if (chunk + 1 < chunks) continue;
            const u64 end = at + length;
            if (lane() < padded(end) - end) row.bytes[end + lane()] = 0;
            if (lane() != 0) continue;
            auto* const header = reinterpret_cast<u64*>(row.bytes);
            header[0] = end;
            header[1] = static_cast<u32>(step_exponent(row.facts));
        }
    });
}

// Decodes a chunk of `length` bytes into values.
ZENC_DEVICE bool read_chunk(const CodedRow& row, u64 chunk, u64 at, u64 length, bool stored) {
    const u32 bits = static_cast<u32>(row.code.bits);
    const u64 first = chunk * CHUNK, numbers = row.n - first < CHUNK ? row.n - first : CHUNK;
    auto* const out = static_cast<int*>(row.values) + first;
    const u8* const from = row.bytes + at;
    u32 right = 1;
    if (stored) {
        right = length == packed_bytes(bits, numbers);
        for (u64 i = lane(); right != 0 && i < numbers; i += WARP)
            out[i] = static_cast<int>(packed_number<u8>(from, i, numbers, bits) - (1U << (bits - 1)));
    } else if (lane() == 0) {
        right = decode_chunk(from, length, numbers, bits, out);
    }
    right = __shfl_sync(ALL_LANES, right, 0);
    __syncwarp();
    const float step = step_with(reinterpret_cast<const int*>(row.bytes)[2]);
    for (u64 i = lane(); right != 0 && i < numbers; i += WARP)
        reinterpret_cast<float*>(out)[i] = canonical(static_cast<float>(out[i]) * step);
    return right != 0;
}

// Decodes rows, each from `code.block` bytes.
ZENC_DEVICE void decode_chunks(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        const u64 chunks = ceil_divide(row.n, CHUNK), all = static_cast<u64>(row.code.block);
        for (u64 chunk = warp_of_row(); chunk < chunks; chunk += warps_of_row()) {
            u64 at = all + 1, length = 0;
            bool stored = false;
            if (all >= CODED_HEADER + chunks * sizeof(u32) &&
                is_exponent(reinterpret_cast<const int*>(row.bytes)[2])) {
                at = bytes_before(row, chunk);
                length = lengths_of(row)[chunk] & ~STORED;
                stored = (lengths_of(row)[chunk] & STORED) != 0;
            }
            const bool whole = at <= all && length <= all - at && (chunk + 1 < chunks || at + length == all);
            if ((!whole || !read_chunk(row, chunk, at, length, stored)) && lane() == 0) *row.facts = 1;
        }
    });
}

}  // namespace zenc
