// Kernels of compression for CPUs: one unit for all mappings, since none of them depends on one.
#include <type_traits>

#include "zenc/entry_points.h"
#include "zenc_cpu/compress/contribute.h"
#include "zenc_cpu/compress/fixed.h"
#include "zenc_cpu/compress/linear.h"
#include "zenc_cpu/compress/low_rank.h"
#include "zenc_cpu/compress/transform.h"

namespace {

using zenc::entry, zenc::i64, zenc::u32, zenc::u64, zenc::u8;

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
        if constexpr (std::decay_t<decltype(by)>::TRITS)
            return use(by, zenc::Trits{});
        else
            return use(by, packing);
    });
}

template <class T>
i64 encode(i64 code, i64 levels, i64 bits, u64 block, u64 key, const T* values, u64 n, u8* out, T* decoded,
           float* loss) {
    const bool at_random = levels != 1;
    if (code == zenc::F16_CODE)
        return encode_rounded<zenc::f16>(at_random, key, values, n, out, decoded, loss);
    if (code == zenc::BF16_CODE)
        return encode_rounded<zenc::bf16>(at_random, key, values, n, out, decoded, loss);
    return with_packing(code, levels, bits, [&](const auto& by, const auto& packing) {
        return static_cast<i64>(zenc::encode_blocks(by, packing, values, n, block, key, out, decoded, loss));
    });
}

template <class T>
i64 decode(i64 code, i64 levels, i64 bits, u64 block, const u8* in, u64 n, T* values) {
    if (code == zenc::F16_CODE) return decode_rounded<zenc::f16>(in, n, values);
    if (code == zenc::BF16_CODE) return decode_rounded<zenc::bf16>(in, n, values);
    return with_packing(code, levels, bits, [&](const auto& by, const auto& packing) {
        zenc::decode_blocks(by, packing, in, n, block, values);
        return i64{0};
    });
}

// The random words of n slots from `first` on.
void random_words(u64 key, u64 first, u64 n, u32* out) {
    for (u64 i = 0; i < n; ++i) out[i] = zenc::random_word(key, first + i);
}

void philox(u64 key, u64 low, u64 high, u32* out) {
    const zenc::Philox drawn = zenc::philox(key, low, high);
    std::memcpy(out, drawn.word, sizeof drawn.word);
}

bool sampled_threshold(const float* values, u64 n, u64 k, u64 drawn, u64 key, zenc::Threshold& found) {
    return zenc::sampled_threshold([&](u64 i) { return values[i]; }, n, k, drawn, key, found);
}

// Returns the magnitude that was last found.
i64 mark(float* magnitudes, u64 n, i64 kind, u64 a, u64 b, u64 key, u64* marks) {
    zenc::Threshold last{};
    return zenc::mark({magnitudes, marks}, n, {kind, a, b, key}, last) ? i64{last.magnitude}
                                                                       : zenc::NO_MEMORY;
}

bool mark_part(float* magnitudes, const i64* units, u64 n, u64 k, u64* marks) {
    return zenc::mark_part({magnitudes, marks}, units, n, k);
}

u64 list_taken(const float* values, u64 n, u32 magnitude, u64 equal, i64* out) {
    return zenc::list_taken(values, n, {magnitude, equal}, out);
}

template <class T>
void accumulate(T* gradient, u64 n, const float* residual, float* out, const float* velocity, float m,
                float* velocity_out, zenc::Accumulated* found) {
    *found = zenc::accumulate<T>({gradient, n, residual, out, velocity, m, velocity_out});
}

template <class T>
void take_factors(const zenc::Factored* tensors, u64 n, T* gradient, const float* residual, float* left,
                  float* sent, zenc::FactorsTaken* found) {
    *found = zenc::take_factors(tensors, n, gradient, residual, left, sent);
}

template <class T>
bool contribute(T* gradient, u64 n, const float* residual, float* left, const float* velocity, float m,
                float* velocity_out, i64 kind, u64 a, u64 b, u64 key, zenc::Contributed* found) {
    return zenc::contribute<T>({gradient, n, residual, left, velocity, m, velocity_out}, {kind, a, b, key},
                               *found);
}

template <class T>
i64 take(float* left, u64 n, u32 magnitude, u64 equal, T* gradient, float* velocity, double* squares) {
    return write_taken(zenc::take(left, n, {magnitude, equal}, gradient, velocity), squares);
}

template <class T>
i64 take_rows(float* left, u64 rows, u64 width, const u64* marks, T* gradient, float* velocity,
              double* squares) {
    return write_taken(zenc::take_rows(left, rows, width, marks, gradient, velocity), squares);
}

}  // namespace

#define ZENC_TYPED(name, type)                                                                            \
    entry("accumulate_" #name, accumulate<type>), entry("contribute_" #name, contribute<type>),           \
        entry("take_factors_" #name, take_factors<type>), entry("take_" #name, take<type>),               \
        entry("take_rows_" #name, take_rows<type>), entry("take_units_" #name, zenc::take_units<type>),   \
        entry("remember_" #name, zenc::remember<type>),                                                   \
        entry("query_sketch_" #name, zenc::query_sketch<type>),                                           \
        entry("is_finite_" #name, zenc::all_finite<type>), entry("encode_" #name, encode<type>),          \
        entry("decode_" #name, decode<type>), entry("quantise_fixed_" #name, zenc::quantise_fixed<type>), \
        entry("encode_fixed_" #name, zenc::encode_fixed<type>),                                           \
        entry("decode_fixed_" #name, zenc::decode_fixed<type>),                                           \
        entry("encode_adaptive_" #name, zenc::encode_adaptive<type>),                                     \
        entry("decode_adaptive_" #name, zenc::decode_adaptive<type>)

const zenc::EntryPoint zenc_entry_points[] = {
    entry("random_words", random_words),
    entry("philox", philox),
    entry("row_magnitudes", zenc::row_magnitudes),
    entry("exact_threshold", zenc::exact_threshold),
    entry("sampled_threshold", sampled_threshold),
    entry("bisected_threshold", zenc::bisected_threshold),
    entry("mark", mark),
    entry("mark_part", mark_part),
    entry("list_taken", list_taken),
    entry("draw_units", zenc::draw_units),
    entry("sketch", zenc::sketch),
    entry("orthonormalise", zenc::orthonormalise),
    entry("add_product", zenc::add_product),
    entry("expand_factors", zenc::expand_factors),
    entry("transform", zenc::transform<>),
    ZENC_TYPED(f32, float),
    ZENC_TYPED(f16, zenc::f16),
    ZENC_TYPED(bf16, zenc::bf16),
    {},
};
