// The values of segments to the bytes of codes and back, many segments a launch; and what that loses, where
// a rank keeps it.
#pragma once

#include "zenc_cuda/compress/accumulate.h"

namespace zenc {

// Finds the facts of values that are multiples of one power of two: the greatest magnitude, and the
// complement of the lowest bit that any of them has.
template <class T>
ZENC_DEVICE void find_step(const CodedRow& row) {
    u32 greatest = 0, least = 0;
    for (u64 i = thread_of_row(); i < row.n; i += threads_of_row()) {
        const float x = Type<T>::widen(static_cast<const T*>(row.values)[i]);
        raise(greatest, magnitude_of(x));
        raise(least, ~lowest_bit(x));
    }
    greatest = greatest_of_warp(greatest);
    least = greatest_of_warp(least);
    if (lane() != 0 || (greatest == 0 && least == 0)) return;
    atomicMax(row.facts, static_cast<u64>(greatest));
    atomicMax(row.facts + 1, static_cast<u64>(least));
}

// The exponent of the greatest power of two that divides all values: common_exponent on CPUs.
ZENC_DEVICE int step_exponent(const u64* facts) {
    const u32 least = ~static_cast<u32>(facts[1]);
    if (facts[0] >= INFINITE) return NOT_FINITE;
    if (least >= INFINITE) return 0;
    return least >> 23 ? static_cast<int>(least >> 23) - 127 : static_cast<int>(bit_length(least)) - 150;
}

// Values as integer multiples of a step, packed as offsets from the least integer. Nothing is lost.
template <class T>
struct Multiple {
    const T* values;
    int exponent;
    u32 offset;

    ZENC_DEVICE u32 number(u64 i) const {
        if (exponent == NOT_FINITE) return offset;
        return static_cast<u32>(static_cast<int>(Type<T>::widen(values[i]) / power_of_two(exponent))) +
               offset;
    }

    ZENC_DEVICE u32 encode(u64 i, Drawn&) const { return number(i); }

    template <u32 N>
    ZENC_DEVICE void encode_all(u64 i, Drawn&, u32 (&numbers)[N]) const {
#pragma unroll
        for (u32 k = 0; k < N; ++k) numbers[k] = number(i + k * PACKED_LANES);
    }
};

// Packs a window's share of n numbers, from number `first` on.
template <class T>
ZENC_DEVICE void pack_numbers(const Multiple<T>& of, u64 first, u64 n, u32 bits, u8* to) {
    Drawn nothing;
    if (n >= PACKED_WINDOW)
        pack_window(of, first, bits, to, nothing);
    else
        pack_rest(of, first, n, bits, to, nothing);
}

template <class T>
ZENC_DEVICE void encode_multiples(const CodedRow& row) {
    if (row.n == 0) return;
    const u32 bits = static_cast<u32>(row.code.bits);
    const Multiple<T> of{static_cast<const T*>(row.values), step_exponent(row.facts), 1U << (bits - 1)};
    if (thread_of_row() == 0) *reinterpret_cast<int*>(row.bytes) = of.exponent;
    u8* const packed = row.bytes + sizeof(int);
    for (u64 at = warp_of_row(); at * PACKED_WINDOW < row.n; at += warps_of_row()) {
        const u64 first = at * PACKED_WINDOW;
        pack_numbers(of, first, row.n - first, bits, packed + packed_bytes(bits, first));
    }
}

template <class T>
ZENC_DEVICE void decode_multiples(const CodedRow& row) {
    if (row.n == 0) return;
    const u32 bits = static_cast<u32>(row.code.bits), offset = 1U << (bits - 1);
    const int exponent = *reinterpret_cast<const int*>(row.bytes);
    if (!is_exponent(exponent)) *row.facts = 1;
    const float step = step_with(exponent);
    for (u64 i = thread_of_row(); i < row.n; i += threads_of_row()) {
        const u32 number = packed_number(row.bytes + sizeof(int), i, row.n, bits);
        static_cast<T*>(row.values)[i] =
            Type<T>::round(static_cast<float>(static_cast<int>(number - offset)) * step);
    }
}

template <class T>
ZENC_DEVICE Source<T> source_of(const CodedRow& row) {
    return {static_cast<const T*>(row.values), row.before, row.how};
}

// Finds the scales of rows whose blocks are too long for one warp, and the facts of rows that have one step.
template <class T>
ZENC_DEVICE void scale_rows(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        if (has_one_step(row.code)) return find_step<T>(row);
        if (!has_scales(row.code) || span_of(row.code) != 0) return;
        with_code(row.code.number, row.code.levels, [&](const auto& code) {
            scale_blocks(code, source_of<T>(row), warp_of_row(), warps_of_row(), row.n,
                         static_cast<u64>(row.code.block), reinterpret_cast<float*>(row.bytes));
        });
    });
}

// Writes all bytes but scales, with zeros up to a multiple of 8 behind them; and the values that the bytes
// mean, where a row wants them.
template <class T>
ZENC_DEVICE void encode_rows(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        if (row.code.number == ASC_CODE) return;  // chunks.h
        if (row.code.number == FIXED_CODE)
            encode_multiples<T>(row);
        else
            encode(row.code, row.key, source_of<T>(row), row.n, row.bytes, static_cast<T*>(row.meaning),
                   Loss{row.loss, row.how});
        const u64 bytes = encoded_bytes(row.code, row.n);
        if (thread_of_row() < padded(bytes) - bytes) row.bytes[bytes + thread_of_row()] = 0;
    });
}

template <class T>
ZENC_DEVICE void decode_rows(const CodedRow* rows, u64 n) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        if (row.code.number == ASC_CODE) return;
        if (row.code.number == FIXED_CODE) return decode_multiples<T>(row);
        decode(row.code, row.bytes, row.n, static_cast<T*>(row.values));
    });
}

// Values i, i + 32, ... of a piece of a sum, below n; in a code they are decoded.
template <u32 N, class Code, class T>
ZENC_DEVICE void load_piece(const Code& code, const CodedRow& row, const Divider& block, u64 first,
                            T (&found)[N]) {
    const auto* const scales = reinterpret_cast<const float*>(row.bytes);
    const u8* const packed = row.bytes + ceil_divide(row.n, block.divisor) * Code::SCALES * sizeof(float);
    const Source<T> from = source_of<T>(row);
#pragma unroll
    for (u32 k = 0; k < N; ++k) {
        const u64 i = first + k * WARP;
        if (i >= row.n) continue;
        if (row.code.number == NOT_CODED) {
            const bool bare = row.how == 0 && row.before == nullptr;
            found[k] = bare ? from.values[i] : Type<T>::round(from.at(i));
            continue;
        }
        const u32 number = Code::TRITS ? packed_trit(packed, i, row.n)
                                       : packed_number(packed, i, row.n, static_cast<u32>(row.code.bits));
        found[k] = Type<T>::round(code.value(number, scales + block.quotient(i) * Code::SCALES));
    }
}

// targets[i] = the sum of its pieces, added in their order. All have all slots; some pieces are still in a
// code of blocks, which all of these share.
template <class T>
ZENC_DEVICE void sum_rows(const CodedRow* targets, u64 n, const Pieces* of, const CodedRow* pieces) {
    constexpr u32 N = 4;
    for_each_segment(n, [&](u64 i) {
        const CodedRow& to = targets[i];
        const Divider block(static_cast<u64>(to.code.block));
        with_code(to.code.number, to.code.levels, [&](const auto& code) {
            for (u64 first = warp_of_row() * N * WARP + lane(); first - lane() < to.n;
                 first += warps_of_row() * N * WARP) {
                float sums[N] = {};
                T found[N] = {};
                for (u64 k = 0; k < of[i].number; ++k) {
                    load_piece<N>(code, pieces[of[i].first + k], block, first, found);
#pragma unroll
                    for (u32 at = 0; at < N; ++at) {
                        const float value = Type<T>::widen(found[at]);
                        sums[at] = k == 0 ? value : sums[at] + value;
                    }
                }
#pragma unroll
                for (u32 at = 0; at < N; ++at)
                    if (first + at * WARP < to.n)
                        static_cast<T*>(to.values)[first + at * WARP] =
                            of[i].number == 1 ? found[at] : Type<T>::round(sums[at]);
            }
        });
    });
}

// Raises *greatest to the greatest magnitude in rows, found in their values or bounded by their scales.
template <class T>
ZENC_DEVICE void raise_of_rows(const CodedRow* rows, u64 n, u64* greatest) {
    for_each_segment(n, [&](u64 i) {
        const CodedRow& row = rows[i];
        if (!scales_tell(row.code)) return raise_greatest(static_cast<const T*>(row.values), row.n, greatest);
        const auto* const scales = reinterpret_cast<const float*>(row.bytes);
        const u64 blocks = ceil_divide(row.n, static_cast<u64>(row.code.block));
        u32 most = 0;
        for_each_vector<1>(row.code.number == ONEBIT_CODE ? 2 * blocks : blocks, [&](u64 k) {
            raise(most, magnitude_of(Type<T>::widen(Type<T>::round(scales[k]))));
        });
        raise_to(greatest, most);
    });
}

// residual [units, width] += the losses of rows, at the units of the segments. No two of a launch have one
// unit.
template <class Mapping>
ZENC_DEVICE void keep_losses(const Geometry<Mapping>& geometry, const Segment* segments, const CodedRow* rows,
                             u64 n, float* residual) {
    for_each_segment(n, [&](u64 i) {
        RowBatches batch(segments[i], geometry.width * sizeof(float));
        while (batch.next()) {
            if (!batch.has_row()) continue;
            const u64 slot = geometry.first_slot(segments[i].part) + batch.slot();
            const float* const loss = rows[i].loss + (batch.first + lane()) * geometry.width;
            float* const kept = residual + geometry.mapping.unit(slot) * geometry.width;
            for (u64 column = 0; column < geometry.width; ++column) kept[column] += loss[column];
        }
    });
}

}  // namespace zenc
