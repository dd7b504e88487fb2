// Results of processors with AVX-512 in lanes, against loops over single numbers. Prints a digest of
// all results, which has to be the same however it is compiled.
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "zenc_cpu/kernels.h"

using namespace zenc;

namespace {

std::mt19937_64 random_bits(5);
u64 digest = 0;

void take(const void* bytes, u64 n) {
    for (u64 i = 0; i < n; ++i) digest = (digest ^ static_cast<const u8*>(bytes)[i]) * 0x100000001b3ULL;
}

void demand(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

// Words of about `bits` bits.
u64 random_word(u64 bits) {
    u64 word = 0;
    for (u64 i = 0; i < 64; ++i) word |= u64{random_bits() % 64 < bits} << i;
    return word;
}

template <class Index>
void numbers_of_bits() {
    for (u64 bits = 0; bits <= 64; ++bits) {
        const u64 word = random_word(bits);
        Index out[64];
        const u64 n = append_bits<4>(word, 1000, out);
        u64 i = 0;
        for (u64 bit = 0; bit < 64; ++bit)
            if ((word >> bit & 1) != 0) demand(out[i++] == static_cast<Index>(1000 + bit), "number of a bit");
        demand(i == n, "numbers of bits");
        take(out, n * sizeof(Index));
    }
}

template <class Bits>
void nonzero_values() {
    constexpr Bits SIGN = static_cast<Bits>(Bits{1} << (8 * sizeof(Bits) - 1));
    for (int trial = 0; trial < 50; ++trial) {
        const u64 wanted = random_bits();
        Bits rows[64];
        for (u64 i = 0; i < 64; ++i) {
            const Bits sign = random_bits() % 2 != 0 ? SIGN : 0;
            rows[i] = (wanted >> i & 1) != 0 ? static_cast<Bits>(sign | (Bits{1} << trial % 8)) : sign;
        }
        demand(occupied_word(rows, 64, One()) == wanted, "nonzero values");
    }
}

void permutations() {
    for (const u64 units :
         {1ULL, 64ULL, 1000ULL, 65536ULL, 4000000ULL, 0xffff0000ULL, 0xffff0001ULL, 1ULL << 40}) {
        for (int trial = 0; trial < 20; ++trial) {
            const Permutation mapping(random_bits(), units, 1ULL << trial % 7);
            u64 in[MOST_IN_BATCH], out[MOST_IN_BATCH], back[MOST_IN_BATCH];
            const u64 n = 1 + random_bits() % BATCH;
            for (u64 i = 0; i < n; ++i) in[i] = random_bits() % units;
            slots_of_batch(mapping, in, n, out);
            for (u64 i = 0; i < n; ++i) demand(out[i] == mapping.slot(in[i]), "slot");
            take(out, n * 8);
            units_of_batch(mapping, out, n, back);
            for (u64 i = 0; i < n; ++i) demand(back[i] == in[i], "unit");
        }
    }
}

// Bits of any value, NaN too where a slot is in one segment; sums of numbers.
template <class T>
void merges(u64 m, u64 bits) {
    using Bits = typename Type<T>::Bits;
    const u64 words = 5;
    std::vector<std::vector<u64>> bitmaps(m, std::vector<u64>(words));
    std::vector<std::vector<T>> values(m);
    std::vector<const u64*> bitmap_of;
    std::vector<const T*> values_of;
    std::vector<std::vector<T>> rows(64 * words);
    for (u64 k = 0; k < m; ++k) {
        for (u64& word : bitmaps[k]) word = random_word(bits);
        for (u64 slot = 0; slot < 64 * words; ++slot) {
            if ((bitmaps[k][slot / 64] >> slot % 64 & 1) == 0) continue;
            const Bits some = static_cast<Bits>(random_bits());
            T value;
            std::memcpy(&value, &some, sizeof value);
            if (m > 1) value = Type<T>::round(static_cast<float>(some % 2001) / 7 - 100);
            values[k].push_back(value);
            rows[slot].push_back(value);
        }
        bitmap_of.push_back(bitmaps[k].data());
        values_of.push_back(values[k].data());
    }
    std::vector<u64> all(words);
    std::vector<T> out(unite(m, bitmap_of.data(), words, all.data()));
    demand(merge(m, bitmap_of.data(), values_of.data(), words, 1, out.data()) == static_cast<i64>(out.size()),
           "count");
    u64 i = 0;
    for (const auto& row : rows) {
        if (row.empty()) continue;
        auto sum = Type<T>::widen(row[0]);
        for (u64 k = 1; k < row.size(); ++k) sum += Type<T>::widen(row[k]);
        const T expected = row.size() == 1 ? row[0] : Type<T>::round(sum);
        demand(std::memcmp(&out[i++], &expected, sizeof expected) == 0, "sum");
    }
    take(out.data(), out.size() * sizeof(T));
}

template <class T>
void every_merge() {
    for (const u64 m : {1, 2, 3, 8, 17})
        for (const u64 bits : {0, 1, 3, 20, 64}) merges<T>(m, bits);
}

void owners_among(u64 ranks) {
    constexpr u64 WORDS = 300;
    std::vector<u64> words(ranks * WORDS);
    for (u64& word : words) word = random_word(random_bits() % 4);
    std::vector<const u64*> bitmaps(ranks);
    for (u64 k = 0; k < ranks; ++k) bitmaps[k] = words.data() + k * WORDS;
    std::vector<u16> owners(64 * WORDS);
    std::vector<u64> counts(ranks * ranks);
    u64 chosen = 0;
    const i64 n = choose_owners(ranks, bitmaps.data(), WORDS, owners.data(), counts.data(), &chosen);
    demand(n > 0, "owners");
    take(owners.data(), static_cast<u64>(n) * sizeof(u16));
    take(counts.data(), counts.size() * sizeof(u64));
    take(&chosen, sizeof chosen);
}

}  // namespace

int main() {
    numbers_of_bits<u32>();
    numbers_of_bits<u64>();
    nonzero_values<u16>();
    nonzero_values<u32>();
    nonzero_values<u64>();
    permutations();
    every_merge<float>();
    every_merge<double>();
    every_merge<f16>();
    every_merge<bf16>();
    for (u64 ranks : {1, 2, 9, 70}) owners_among(ranks);
    std::printf("%llx\n", digest);
}
