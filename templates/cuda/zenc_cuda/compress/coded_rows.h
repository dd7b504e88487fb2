// The values of segments to the bytes of codes and back, many segments a launch; and what that loses, where
// a rank keeps it.
#pragma once

#include "zenc/compress/coding.h"
#include "zenc_cuda/compress/codes.h"
#include "zenc_cuda/rows.h"

namespace zenc {

// The scales of all rows whose codes have some.
template <class T>
ZENC_DEVICE void scale_rows(const CodedRow* rows, i64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        if (!has_scales(row.code)) return;
        scale_code(row.code.number, row.code.levels, row.code.block, static_cast<const T*>(row.values),
                   static_cast<i64>(row.n), row.bytes);
    });
}

// All bytes but scales, zeros up to a multiple of 8 behind them; and in place of values what the bytes mean.
template <class T>
ZENC_DEVICE void encode_rows(const CodedRow* rows, i64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        T* const values = static_cast<T*>(row.values);
        encode(row.code.number, row.code.levels, row.code.bits, row.code.block, static_cast<i64>(row.key),
               values, static_cast<i64>(row.n), row.bytes, values, row.loss);
        const u64 bytes = encoded_bytes(row.code, row.n);
        if (thread_of_row() < padded(bytes) - bytes) row.bytes[bytes + thread_of_row()] = 0;
    });
}

template <class T>
ZENC_DEVICE void decode_rows(const CodedRow* rows, i64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        decode(row.code.number, row.code.levels, row.code.bits, row.code.block, row.bytes,
               static_cast<i64>(row.n), static_cast<T*>(row.values));
    });
}

// residual [units, width] += the losses of rows, at the units of the segments. No two of a launch have one
// unit.
template <class Mapping>
ZENC_DEVICE void keep_losses(const Mapping& mapping, const Partition& by, const Segment* segments,
                             const CodedRow* rows, i64 n, float* residual) {
    const Geometry<Mapping> geometry(by, mapping);
    for_each_segment(n, [&](u64 i) {
        RowBatches batch(segments[i], geometry.width * sizeof(float));
        while (batch.next()) {
            if (!batch.has_row()) continue;
            const u64 slot = geometry.first_slot(segments[i].part) + 64 * batch.word + batch.bit;
            const float* const loss = rows[i].loss + (batch.first + lane()) * geometry.width;
            float* const kept = residual + geometry.mapping.unit(slot) * geometry.width;
            for (u64 column = 0; column < geometry.width; ++column) kept[column] += loss[column];
        }
    });
}

}  // namespace zenc
