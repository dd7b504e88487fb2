// Kernels of compression for CPUs: one unit for all mappings, since none of them depends on one.
#include <type_traits>

#include "zenc/constants.h"
#include "zenc_cpu/compress/contribute.h"
#include "zenc_cpu/compress/fixed.h"
#include "zenc_cpu/compress/linear.h"
#include "zenc_cpu/compress/low_rank.h"

namespace {

using zenc::i64;
using zenc::u32;
using zenc::u64;
using zenc::u8;

u64 size(i64 n) {
    return static_cast<u64>(n);
}

zenc::Threshold threshold_of(i64 magnitude, i64 equal) {
    return {static_cast<u32>(magnitude), size(equal)};
}

i64 write_threshold(bool done, const zenc::Threshold& found, i64* out) {
    out[0] = found.magnitude;
    out[1] = static_cast<i64>(found.equal);
    return done ? 0 : zenc::NO_MEMORY;
}

i64 write_taken(const zenc::Taken& taken, double* squares) {
    *squares = taken.squares;
    return taken.count < 0 ? zenc::NO_MEMORY : taken.count;
}

template <class To>
void round_all(const float* x, u64 n, const u32* random, To* rounded) {
    if (random)
        for (u64 i = 0; i < n; ++i) rounded[i] = zenc::random_round<To>(x[i], random[i]);
    else
        for (u64 i = 0; i < n; ++i) rounded[i] = zenc::Type<To>::round(x[i]);
}

template <class To, class T>
i64 encode_rounded(bool at_random, u64 key, const T* values, u64 n, u8* out, T* decoded, float* loss) {
    static_assert(zenc::STRETCH % zenc::DRAWN_TOGETHER == 0, "a stretch begins with words of its own");
    float wide[zenc::STRETCH], y[zenc::STRETCH];
    u32 random[zenc::STRETCH];
    To rounded[zenc::STRETCH];
    for (u64 first = 0; first < n; first += zenc::STRETCH) {
        const u64 length = n - first < zenc::STRETCH ? n - first : zenc::STRETCH;
        const float* const x = zenc::as_floats(values + first, length, wide);
        if (at_random)
            zenc::random_words(key, first, zenc::ceil_divide(length, zenc::DRAWN_TOGETHER), random);
        round_all(x, length, at_random ? random : nullptr, rounded);
        std::memcpy(out + first * sizeof(To), rounded, length * sizeof(To));
        if (!decoded && !loss) continue;
        zenc::widen_all(rounded, length, y);
        zenc::write_decoded(x, y, length, decoded ? decoded + first : nullptr, loss ? loss + first : nullptr);
    }
    return static_cast<i64>(n * sizeof(To));
}

template <class From, class T>
i64 decode_rounded(const u8* in, u64 n, T* values) {
    From stored[zenc::STRETCH];
    for (u64 first = 0; first < n; first += zenc::STRETCH) {
        const u64 length = n - first < zenc::STRETCH ? n - first : zenc::STRETCH;
        std::memcpy(static_cast<void*>(stored), in + first * sizeof(From), length * sizeof(From));
        for (u64 i = 0; i < length; ++i)
            values[first + i] = zenc::Type<T>::round(zenc::Type<From>::widen(stored[i]));
    }
    return static_cast<i64>(n * sizeof(From));
}

// use(code, packing) for the block code of a number: `levels` of a step, `bits` of an integer.
template <class Use>
i64 with_packing(i64 code, i64 levels, i64 bits, Use use) {
    const zenc::Bits packing{static_cast<u32>(bits)};
    return zenc::with_code(code, levels, [&](const auto& by) {
        if constexpr (std::is_same_v<std::decay_t<decltype(by)>, zenc::RandomMultiples<false>>)
            return use(by, zenc::Trits{});
        else
            return use(by, packing);
    });
}

template <class T>
i64 encode(i64 code, i64 levels, i64 bits, i64 block, u64 key, const T* values, u64 n, u8* out, T* decoded,
           float* loss) {
    const bool at_random = levels != 1;
    if (code == zenc::F16_CODE)
        return encode_rounded<zenc::f16>(at_random, key, values, n, out, decoded, loss);
    if (code == zenc::BF16_CODE)
        return encode_rounded<zenc::bf16>(at_random, key, values, n, out, decoded, loss);
    return with_packing(code, levels, bits, [&](const auto& by, const auto& packing) {
        return static_cast<i64>(
            zenc::encode_blocks(by, packing, values, n, size(block), key, out, decoded, loss));
    });
}

template <class T>
i64 decode(i64 code, i64 levels, i64 bits, i64 block, const u8* in, u64 n, T* values) {
    if (code == zenc::F16_CODE) return decode_rounded<zenc::f16>(in, n, values);
    if (code == zenc::BF16_CODE) return decode_rounded<zenc::bf16>(in, n, values);
    return with_packing(code, levels, bits, [&](const auto& by, const auto& packing) {
        zenc::decode_blocks(by, packing, in, n, size(block), values);
        return i64{0};
    });
}

}  // namespace

extern "C" {

i64 zenc_abi_version() {
    return ZENC_ABI_VERSION;
}

// The random words of n slots from `first` on.
i64 zenc_random_words(i64 key, i64 first, i64 n, u32* out) {
    for (i64 i = 0; i < n; ++i) out[i] = zenc::random_word(size(key), size(first + i));
    return n;
}

i64 zenc_philox(i64 key, i64 low, i64 high, u32* out) {
    const zenc::Philox drawn = zenc::philox(size(key), size(low), size(high));
    std::memcpy(out, drawn.word, sizeof drawn.word);
    return 4;
}

i64 zenc_row_magnitudes(const float* values, i64 rows, i64 width, float* out) {
    zenc::row_magnitudes(values, size(rows), size(width), out);
    return rows;
}

i64 zenc_exact_threshold(const float* values, i64 n, i64 k, i64* out) {
    zenc::Threshold found{};
    const bool done = zenc::exact_threshold(values, size(n), size(k), found);
    return write_threshold(done, found, out);
}

i64 zenc_sampled_threshold(const float* values, i64 n, i64 k, i64 drawn, i64 key, i64* out) {
    zenc::Threshold found{};
    const auto value = [&](u64 i) { return values[i]; };
    const bool done = zenc::sampled_threshold(value, size(n), size(k), size(drawn), size(key), found);
    return write_threshold(done, found, out);
}

i64 zenc_bisected_threshold(const float* values, i64 n, i64 k, i64 steps, i64* out) {
    zenc::Threshold found{};
    const bool done = zenc::bisected_threshold(values, size(n), size(k), steps, found);
    return write_threshold(done, found, out);
}

// Returns the magnitude that was last found.
i64 zenc_mark(float* magnitudes, i64 n, i64 kind, i64 a, i64 b, i64 key, u64* marks) {
    zenc::Threshold last{};
    const zenc::UnitChoice choice{kind, size(a), size(b), size(key)};
    return zenc::mark({magnitudes, marks}, size(n), choice, last) ? i64{last.magnitude} : zenc::NO_MEMORY;
}

i64 zenc_mark_part(float* magnitudes, const i64* units, i64 n, i64 k, u64* marks) {
    return zenc::mark_part({magnitudes, marks}, units, size(n), size(k)) ? n : zenc::NO_MEMORY;
}

i64 zenc_list_taken(const float* values, i64 n, i64 magnitude, i64 equal, i64* out) {
    return static_cast<i64>(zenc::list_taken(values, size(n), threshold_of(magnitude, equal), out));
}

i64 zenc_draw_units(i64 n, i64 k, i64 key, i64* out) {
    zenc::draw_units(size(n), size(k), size(key), out);
    return k;
}

i64 zenc_sketch(const float* values, i64 n, i64 rows, i64 cells, i64 key, float* out) {
    zenc::sketch(values, size(n), static_cast<u32>(rows), size(cells), size(key), out);
    return rows * cells;
}

i64 zenc_orthonormalise(float* vectors, i64 r, i64 n, i64 key) {
    zenc::orthonormalise(vectors, size(r), size(n), size(key));
    return r;
}

i64 zenc_project(const float* matrix, i64 rows, i64 columns, const float* basis, i64 r, i64 of_rows,
                 float* out) {
    zenc::project(matrix, size(rows), size(columns), basis, size(r), of_rows != 0, out);
    return r;
}

i64 zenc_add_product(const float* left, const float* right, i64 r, i64 rows, i64 columns, double sign,
                     float* matrix) {
    zenc::add_product(left, right, size(r), size(rows), size(columns), static_cast<float>(sign), matrix);
    return r;
}

#define ZENC_TYPED(name, type)                                                                               \
    i64 zenc_accumulate_##name(type* gradient, i64 n, const float* residual, float* out,                     \
                               const float* velocity, double m, float* velocity_out,                         \
                               zenc::Accumulated* found) {                                                   \
        const float factor = static_cast<float>(m);                                                          \
        *found = zenc::accumulate<type>({gradient, size(n), residual, out, velocity, factor, velocity_out}); \
        return n;                                                                                            \
    }                                                                                                        \
    i64 zenc_contribute_##name(type* gradient, i64 n, const float* residual, float* left,                    \
                               const float* velocity, double m, float* velocity_out, i64 kind, i64 a, i64 b, \
                               i64 key, zenc::Contributed* found) {                                          \
        const float factor = static_cast<float>(m);                                                          \
        const zenc::UnitChoice choice{kind, size(a), size(b), size(key)};                                    \
        return zenc::contribute<type>({gradient, size(n), residual, left, velocity, factor, velocity_out},   \
                                      choice, *found)                                                        \
                   ? n                                                                                       \
                   : zenc::NO_MEMORY;                                                                        \
    }                                                                                                        \
    i64 zenc_take_##name(float* left, i64 n, i64 magnitude, i64 equal, type* gradient, float* velocity,      \
                         double* squares) {                                                                  \
        const zenc::Threshold at = threshold_of(magnitude, equal);                                           \
        return write_taken(zenc::take(left, size(n), at, gradient, velocity), squares);                      \
    }                                                                                                        \
    i64 zenc_take_rows_##name(float* left, i64 rows, i64 width, const u64* marks, type* gradient,            \
                              float* velocity, double* squares) {                                            \
        return write_taken(zenc::take_rows(left, size(rows), size(width), marks, gradient, velocity),        \
                           squares);                                                                         \
    }                                                                                                        \
    i64 zenc_take_units_##name(float* left, const i64* units, i64 k, i64 width, type* out,                   \
                               float* velocity) {                                                            \
        zenc::take_units(left, units, size(k), size(width), out, velocity);                                  \
        return k;                                                                                            \
    }                                                                                                        \
    i64 zenc_put_units_##name(const type* values, const i64* units, i64 k, i64 width, i64 n, type* out) {    \
        zenc::put_units(values, units, size(k), size(width), size(n), out);                                  \
        return k;                                                                                            \
    }                                                                                                        \
    i64 zenc_remember_##name(const type* result, i64 n, double beta, float* history) {                       \
        zenc::remember(result, size(n), static_cast<float>(beta), history);                                  \
        return n;                                                                                            \
    }                                                                                                        \
    i64 zenc_query_sketch_##name(const float* sketch, i64 n, i64 rows, i64 cells, i64 key, type* out) {      \
        zenc::query_sketch(sketch, size(n), static_cast<u32>(rows), size(cells), size(key), out);            \
        return n;                                                                                            \
    }                                                                                                        \
    i64 zenc_is_finite_##name(const type* values, i64 n) {                                                   \
        return zenc::all_finite(values, size(n));                                                            \
    }                                                                                                        \
    i64 zenc_encode_##name(i64 code, i64 levels, i64 bits, i64 block, i64 key, const type* values, i64 n,    \
                           u8* out, type* decoded, float* loss) {                                            \
        return encode(code, levels, bits, block, size(key), values, size(n), out, decoded, loss);            \
    }                                                                                                        \
    i64 zenc_decode_##name(i64 code, i64 levels, i64 bits, i64 block, const u8* in, i64 n, type* values) {   \
        return decode(code, levels, bits, block, in, size(n), values);                                       \
    }                                                                                                        \
    i64 zenc_quantise_fixed_##name(float* left, i64 n, i64 exponent, i64 levels, type* gradient) {           \
        zenc::quantise_fixed(left, size(n), static_cast<int>(exponent), static_cast<u32>(levels), gradient); \
        return n;                                                                                            \
    }                                                                                                        \
    i64 zenc_encode_fixed_##name(const type* values, i64 n, i64 bits, u8* out) {                             \
        return zenc::encode_fixed(values, size(n), static_cast<u32>(bits), out);                             \
    }                                                                                                        \
    i64 zenc_decode_fixed_##name(const u8* in, i64 n, i64 bits, type* values) {                              \
        return zenc::decode_fixed(in, size(n), static_cast<u32>(bits), values);                              \
    }                                                                                                        \
    i64 zenc_encode_adaptive_##name(const type* values, i64 n, i64 bits, u8* out) {                          \
        return zenc::encode_adaptive(values, size(n), static_cast<u32>(bits), out);                          \
    }                                                                                                        \
    i64 zenc_decode_adaptive_##name(const u8* in, i64 bytes, i64 n, i64 bits, type* values) {                \
        return zenc::decode_adaptive(in, size(bytes), size(n), static_cast<u32>(bits), values);              \
    }

ZENC_TYPED(f32, float)
ZENC_TYPED(f16, zenc::f16)
ZENC_TYPED(bf16, zenc::bf16)

}  // extern "C"
