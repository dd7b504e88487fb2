// Every kernel over random gradients, segments and damaged bytes: built with the address and
// undefined-behaviour sanitizers, with buffers of exactly the promised sizes. Prints nothing and returns 0,
// or says what went wrong. With -DTRY_FEW it tries two types of values, and less at random.
#include <cstdint>
#include <cstdio>
#include <random>
#include <vector>

#include "zenc/compress/coder.h"
#include "zenc_cpu/kernels.h"

using namespace zenc;

namespace {

#ifdef TRY_FEW
constexpr u64 SHARE = 8;
#else
constexpr u64 SHARE = 1;
#endif

std::mt19937_64 random_bits(1);

u64 below(u64 n) {
    return random_bits() % n;
}

void demand(bool holds, const char* what) {
    if (holds) return;
    std::fprintf(stderr, "failed: %s\n", what);
    std::exit(1);
}

template <class T>
std::vector<T> random_values(u64 n) {
    std::vector<T> values(n);
    for (T& value : values) value = Type<T>::round(static_cast<float>(below(2001)) - 1000.0F);
    return values;
}

template <class T>
bool same(const std::vector<T>& a, const std::vector<T>& b) {
    return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Encodes and decodes one part, then decodes damaged copies of its index: no count but the right one may
// pass.
void travel(const u64* bitmap, u64 slots, i64 format) {
    const u64 words = words_of(slots);
    const u64 count = population(bitmap, words);
    const u64 bytes = index_bytes(format, slots, count);
    std::vector<u64> body(bytes / 8);
    demand(encode(format, bitmap, slots, count, nullptr, 0, reinterpret_cast<u8*>(body.data())) ==
               static_cast<i64>(bytes),
           "encoded bytes");
    std::vector<u64> decoded(words);
    demand(decode_index(format, reinterpret_cast<u8*>(body.data()), slots, count, decoded.data()) == 0,
           "decode");
    demand(same(decoded, std::vector<u64>(bitmap, bitmap + words)), "decoded bitmap");
    for (int trial = 0; trial < 8 && !body.empty(); ++trial) {
        std::vector<u64> damaged = body;
        reinterpret_cast<u8*>(damaged.data())[below(bytes)] ^= static_cast<u8>(1U << below(8));
        const i64 status =
            decode_index(format, reinterpret_cast<u8*>(damaged.data()), slots, count, decoded.data());
        demand(status < 0 || population(decoded.data(), words) == count, "count of a damaged segment");
    }
}

// An array for the values of each part, of exactly the size that its bitmap says.
template <class T>
struct PartRows {
    std::vector<std::vector<T>> rows;
    std::vector<T*> outs;

    template <class Mapping>
    PartRows(const Geometry<Mapping>& geometry, const u64* bitmap) {
        for (u64 part = 0; part < geometry.parts; ++part)
            rows.emplace_back(population(bitmap + part * geometry.part_words, geometry.part_words) *
                              geometry.width);
        for (std::vector<T>& each : rows) outs.push_back(each.data());
    }
};

template <class T, class Mapping>
void round_trip(const Geometry<Mapping>& geometry, u64 n) {
    const u64 width = geometry.width;
    std::vector<i64> units(n);
    for (i64& unit : units) unit = static_cast<i64>(below(geometry.units));
    const std::vector<T> values = random_values<T>(n * width);
    std::vector<u64> bitmap(geometry.words());
    std::vector<u64> before(geometry.words());
    std::vector<i64> slots_of(n);
    demand(mark_units(geometry, units.data(), n, bitmap.data(), slots_of.data()) == 0, "mark");
    const u64 distinct = rank(bitmap.data(), geometry.words(), before.data());
    PartRows<T> placed(geometry, bitmap.data());
    demand(place_units(geometry, slots_of.data(), n, values.data(), bitmap.data(), before.data(), distinct, 3,
                       placed.outs.data()) == 0,
           "place");

    const std::vector<const T*> parts(placed.outs.begin(), placed.outs.end());
    for (u64 part = 0; part < geometry.parts; ++part) {
        const u64 word = part * geometry.part_words;
        const u64 slots = geometry.slots_of(part);
        travel(bitmap.data() + word, slots, FORMAT_COO);
        travel(bitmap.data() + word, slots, FORMAT_BITMAP);
        travel(bitmap.data() + word, slots, FORMAT_ELIAS_FANO);
    }
    std::vector<T> dense(geometry.units * width);
    for (T& value : dense) value = Type<T>::round(below(9) == 0 ? 5.0F : -0.0F);
    std::vector<u64> own(geometry.words());
    demand(mark_tensor(geometry, dense.data(), own.data()) >= 0, "mark a tensor");
    demand(expand_dense(geometry, bitmap.data(), parts.data(), own.data(), dense.data()) == 0, "expand");
    std::vector<i64> ids(distinct);
    std::vector<T> rows(distinct * width);
    demand(expand_units(geometry, bitmap.data(), parts.data(), ids.data(), rows.data()) ==
               static_cast<i64>(distinct),
           "expand");
    for (u64 i = 0; i + 1 < distinct; ++i) demand(ids[i] < ids[i + 1], "ascending units");

    std::vector<u64> marks(geometry.words());
    const i64 nonzero = mark_tensor(geometry, dense.data(), marks.data());
    demand(0 <= nonzero && nonzero <= static_cast<i64>(distinct), "marked");
    rank(marks.data(), geometry.words(), before.data());
    PartRows<T> again(geometry, marks.data());
    place_dense(geometry, dense.data(), marks.data(), 1, again.outs.data());
    units[below(n)] = static_cast<i64>(geometry.units);
    demand(mark_units(geometry, units.data(), n, bitmap.data(), slots_of.data()) < 0, "unit out of range");
}

std::vector<u64> block_tables;

// The geometry of permuted single elements, whose tables live until the next call.
Geometry<PermutedBlocks> permuted(u64 units, u64 width, u64 parts, u64 block) {
    const auto signed_ = [](u64 n) { return static_cast<i64>(n); };
    const Geometry<PermutedBlocks> plain(signed_(units), signed_(width), signed_(parts),
                                         PermutedBlocks(7, units, block));
    if (width != 1) return plain;
    block_tables.assign(static_cast<u64>(table_words(plain)), 0);
    const Geometry<PermutedBlocks> made(signed_(units), signed_(width), signed_(parts),
                                        PermutedBlocks(7, units, block, block_tables.data()));
    build_tables(made);
    return made;
}

// Every unit has one slot, in the part of its h0, in ascending order; the gaps behind small parts have none.
void hashed_slots(const Geometry<HashInMemory>& geometry) {
    std::vector<i64> ids(geometry.units);
    std::vector<i64> slots(geometry.units);
    std::vector<i64> back(geometry.units);
    for (u64 i = 0; i < geometry.units; ++i) ids[i] = static_cast<i64>(i);
    demand(slots_of_units(geometry, ids.data(), geometry.units, slots.data()) == 0, "hashed slots");
    demand(units_of_slots(geometry, slots.data(), geometry.units, back.data()) == 0, "hashed units");
    demand(same(ids, back), "hashed slots and back");
    std::vector<u64> filled(geometry.parts);
    for (const i64 slot : slots) {
        const u64 part = static_cast<u64>(slot) / geometry.part_slots.divisor;
        demand(static_cast<u64>(slot) == geometry.first_slot(part) + filled[part]++, "ascending ranks");
    }
    for (u64 part = 0; part < geometry.parts; ++part) {
        demand(filled[part] == geometry.slots_of(part), "size of a hashed part");
        const i64 gap = static_cast<i64>(geometry.first_slot(part) + filled[part]);
        if (filled[part] < geometry.part_slots.divisor)
            demand(units_of_slots(geometry, &gap, 1, back.data()) == -1, "gap behind a part");
    }
}

template <class T>
void hashed_round_trips(u64 units, u64 width, u64 parts, int k, double r1, double r2) {
    const u64 seed = 7;
    std::vector<u64> tables(HashTables::words(units, parts));
    HashTables(units, parts, tables.data()).build(HashFunction(seed, 0), units, parts);
    const HashInMemory mapping(seed, k, r1, r2, units, parts, tables.data());
    const Geometry<HashInMemory> geometry(static_cast<i64>(units), static_cast<i64>(width),
                                          static_cast<i64>(parts), mapping);
    hashed_slots(geometry);
    for (const u64 n : {u64{1}, units, 3 * units}) round_trip<T>(geometry, n);
}

// Whatever is not zero is kept, as it is.
template <class T>
void sparsify(u64 slots, u64 width, const std::vector<T>& dense) {
    using Bits = typename Type<T>::Bits;
    const auto* const rows = reinterpret_cast<const Bits*>(dense.data());
    const u64 words = words_of(slots);
    std::vector<u64> every(words);
    fill_bitmap(every.data(), slots);
    std::vector<u64> kept(words);
    std::vector<Bits> some(mark_nonzero_rows(every.data(), words, width, rows, kept.data()) * width);
    copy_kept_rows(every.data(), kept.data(), words, width, rows, some.data());
    std::vector<Bits> again(slots * width);
    spread_rows(kept.data(), every.data(), slots, width, some.data(), again.data());
    for (u64 i = 0; i < slots * width; ++i)
        demand(magnitude_bits(rows[i]) == 0 || rows[i] == again[i], "a value lost its bits");
}

template <class T>
void merge_some(u64 m, u64 slots, u64 width) {
    const u64 words = words_of(slots);
    std::vector<std::vector<u64>> bitmaps(m, std::vector<u64>(words));
    std::vector<std::vector<T>> values(m);
    std::vector<const u64*> bitmap_of(m);
    std::vector<const T*> values_of(m);
    for (u64 k = 0; k < m; ++k) {
        for (u64 slot = 0; slot < slots; ++slot)
            if (below(3) == 0) bitmaps[k][slot / 64] |= 1ULL << (slot % 64);
        values[k] = random_values<T>(population(bitmaps[k].data(), words) * width);
        bitmap_of[k] = bitmaps[k].data();
        values_of[k] = values[k].data();
    }
    std::vector<u64> all(words);
    const u64 count = unite(m, bitmap_of.data(), words, all.data());
    std::vector<T> out(count * width);
    demand(merge(m, bitmap_of.data(), values_of.data(), words, width, out.data()) == static_cast<i64>(count),
           "merged count");
    std::vector<T> dense(slots * width);
    std::vector<u64> every(words);
    fill_bitmap(every.data(), slots);
    spread_rows(all.data(), every.data(), slots, width, out.data(), dense.data());
    sparsify(slots, width, dense);
}

template <class T>
void every_kernel() {
    for (const u64 units : {1, 2, 63, 64, 65, 300, 1000})
        for (const u64 width : {1, 3, 70})
            for (const u64 parts : {1, 3, 8, 400}) {
                const Geometry<Contiguous> contiguous(static_cast<i64>(units), static_cast<i64>(width),
                                                      static_cast<i64>(parts), Contiguous());
                for (const u64 n : {u64{1}, units, 3 * units}) {
                    round_trip<T>(contiguous, n);
                    round_trip<T>(permuted(units, width, parts, width == 1 ? LEAST_BLOCK : 1), n);
                    for (u64 block = 2 * LEAST_BLOCK; width == 1 && block <= MOST_BLOCK; block *= 2)
                        round_trip<T>(permuted(units, width, parts, block), n);
                }
                hashed_round_trips<T>(units, width, parts, 3, 2.0, 0.2);
                hashed_round_trips<T>(units, width, parts, 1, 0.0, 0.0);
                hashed_round_trips<T>(units, width, parts, 2, 0.3, 0.1);
            }
    for (const u64 m : {1, 2, 3, 9})
        for (const u64 width : {1, 2, 130})
            for (const u64 slots : {1, 64, 200}) merge_some<T>(m, slots, width);
}

// A GPU maps one unit a thread, a CPU whole vectors: they have to agree, also where cycle walking begins.
void one_by_one_as_in_vectors() {
    for (const u64 units : {1ULL, 2ULL, 3ULL, 33ULL, 1000ULL, 1ULL << 33, (1ULL << 62) - 1}) {
        for (int trial = 0; trial < 20; ++trial) {
            const Permutation mapping(below(~0ULL), units, 1ULL << trial % 7);
            u64 in[Permutation::LANES];
            u64 slots[Permutation::LANES];
            u64 back[Permutation::LANES];
            for (u64& unit : in) unit = below(units);
            mapping.slots(in, slots);
            mapping.units_at(slots, back);
            for (int i = 0; i < Permutation::LANES; ++i) {
                demand(slots[i] < units && slots[i] == mapping.slot(in[i]), "slot in a vector");
                demand(back[i] == in[i] && back[i] == mapping.unit(slots[i]), "unit in a vector");
            }
        }
    }
}

// Small tensors are cut with 32-bit arithmetic, large ones with 64 bits.
void parts_of_slots() {
    for (const u64 units : {1ULL, 64ULL, 1000ULL, (1ULL << 32) - 1, 1ULL << 32, 1ULL << 40})
        for (const i64 parts : {1, 3, 64, 1000}) {
            const Geometry<Contiguous> geometry(static_cast<i64>(units), 1, parts, Contiguous());
            u64 slots[64];
            u64 found[64];
            u64 bits[64];
            for (u64& slot : slots) slot = below(units);
            slots[0] = units - 1;
            locate(geometry, slots, 64, found, bits);
            for (u64 i = 0; i < 64; ++i) {
                const u64 part = slots[i] / geometry.part_slots.divisor;
                demand(found[i] == part, "part of a slot");
                demand(bits[i] == 64 * part * geometry.part_words + slots[i] % geometry.part_slots.divisor,
                       "bit of a slot");
            }
        }
}

// Seals a segment in a frame of exactly its size and opens it; then opens damaged copies and rubbish.
void sealed_and_opened(u64 slots, i64 format) {
    const u64 words = words_of(slots);
    std::vector<u64> bitmap(words);
    for (u64 slot = 0; slot < slots; ++slot)
        if (format == FORMAT_DENSE || below(3) == 0) bitmap[slot / 64] |= 1ULL << (slot % 64);
    const u64 count = population(bitmap.data(), words);
    const u64 value_bytes = count * 6;
    const MessageHeader call = {{'z', 'e', 'n', 'M'}, 3, 0, 0, 3, 0, 7, 8, slots};
    const u64 bytes = FRAME_BYTES + index_bytes(format, slots, count) + padded(value_bytes);
    std::vector<u64> frame(bytes / 8);
    u8* const message = reinterpret_cast<u8*>(frame.data());
    const auto signed_ = [](u64 n) { return static_cast<i64>(n); };
    Outgoing out = {
        message, bitmap.data(), signed_(slots), signed_(count), signed_(value_bytes), 2, 5, format, 0};
    demand(seal(call, out) == 0, "seal");
    std::vector<u64> decoded(words);
    const auto opened = [&](const u8* in) {
        return open(call, {in, 3, 2, signed_(slots), signed_(bytes)}, 6, decoded.data());
    };
    const Opened found = opened(message);
    demand(found.bytes == signed_(bytes) && found.count == signed_(count) && found.origin == 5, "open");
    demand(same(decoded, bitmap), "opened bitmap");
    const std::vector<u64> before = frame;
    out.has_index = 1;
    demand(seal(call, out) == 0 && same(frame, before), "sealed again");
    for (int trial = 0; trial < 64; ++trial) {
        std::vector<u64> damaged = frame;
        u8* const other = reinterpret_cast<u8*>(damaged.data());
        other[below(bytes)] ^= static_cast<u8>(1U << below(8));
        if (opened(other).bytes != 0)
            demand(population(decoded.data(), words) == count, "count of a damaged message");
    }
}

// Segments of every density, in parts around the ends of words.
void every_density() {
    for (u64 slots = 1; slots < 20000 / SHARE; slots += 1 + slots / 3)
        for (u64 one_in = 1; one_in < 4 * slots; one_in *= 2)
            for (const bool absent : {false, true}) {
                std::vector<u64> bitmap(words_of(slots));
                for (u64 slot = 0; slot < slots; ++slot)
                    if ((below(one_in) == 0) != absent) bitmap[slot / 64] |= 1ULL << (slot % 64);
                travel(bitmap.data(), slots, FORMAT_ELIAS_FANO);
            }
}

// Blocks of every size, filled up and spread, in parts around their ends.
void every_block() {
    for (u64 slots = 1; slots < 200000 / SHARE; slots += 1 + slots / 2)
        for (i64 format = FORMAT_BLOCK; format <= LAST_FORMAT; ++format) {
            const u64 words = words_of(slots);
            std::vector<u64> bitmap(words);
            for (u64 n = 1 + below(40); n != 0; --n) {
                const u64 slot = below(slots);
                bitmap[slot / 64] |= 1ULL << (slot % 64);
            }
            const Blocks cut = {slots, block_shift(format)};
            std::vector<u64> filled(words);
            const i64 count = fill_blocks(cut, bitmap.data(), filled.data());
            demand(count == static_cast<i64>(population(filled.data(), words)), "filled slots");
            const std::vector<u16> values(population(bitmap.data(), words) * 3, 1);
            std::vector<u16> out(static_cast<u64>(count) * 3);
            spread_rows(bitmap.data(), filled.data(), slots, 3, values.data(), out.data());
            travel(filled.data(), slots, format);
        }
}

// Rubbish in as many bytes as a count says.
void rubbish(i64 format) {
    for (u64 trial = 0; trial < 20000 / SHARE; ++trial) {
        const u64 slots = 1 + below(300);
        const u64 count = below(slots + 1);
        std::vector<u64> words(index_bytes(format, slots, count) / 8);
        for (u64& word : words) word = random_bits() & random_bits();
        if (trial % 2 != 0 && !words.empty()) words.back() &= low_mask(below(64));
        std::vector<u64> bitmap(words_of(slots));
        if (decode_index(format, reinterpret_cast<u8*>(words.data()), slots, count, bitmap.data()) == 0)
            demand(population(bitmap.data(), bitmap.size()) == count, "count of rubbish");
    }
}

// Owners among holders: each holds its unit, rows come back as they were, and no buffer is left.
void among_holders(u64 ranks, u64 units, u64 one_in, u64 row_bytes) {
    const u64 words = words_of(units);
    std::vector<std::vector<u64>> held(ranks, std::vector<u64>(words));
    std::vector<u64> any(words);
    std::vector<const u64*> bitmaps;
    for (std::vector<u64>& mine : held) {
        for (u64 unit = 0; unit < units; ++unit)
            if (below(one_in) == 0) mine[unit / 64] |= 1ULL << (unit % 64);
        for (u64 w = 0; w < words; ++w) any[w] |= mine[w];
        bitmaps.push_back(mine.data());
    }
    const u64 total = population(any.data(), words);
    std::vector<u16> owners(total);
    std::vector<u64> held_counts(ranks * ranks);
    u64 digest = 0;
    demand(choose_owners(ranks, bitmaps.data(), words, owners.data(), held_counts.data(), &digest) ==
               static_cast<i64>(total),
           "units of the union");
    std::vector<u64> counts;
    for (u64 p = 0; p < ranks; ++p) counts.push_back(held_counts[p * ranks + p]);
    std::vector<std::vector<u64>> marks;
    std::vector<u64*> outs;
    for (u64 i = 0; i < ranks * ranks; ++i) marks.emplace_back(words_of(counts[i % ranks]));
    for (std::vector<u64>& bitmap : marks) outs.push_back(bitmap.empty() ? nullptr : bitmap.data());
    demand(mark_parts(ranks, bitmaps.data(), words, owners.data(), outs.data()) == 0, "mark parts");
    for (u64 i = 0; i < marks.size(); ++i)
        demand(population(marks[i].data(), marks[i].size()) == held_counts[i], "slots of a part");

    std::vector<u8> rows(total * row_bytes);
    for (u8& byte : rows) byte = static_cast<u8>(below(256));
    std::vector<std::vector<u8>> parts;
    std::vector<u8*> places;
    for (u64 p = 0; p < ranks; ++p) parts.emplace_back(counts[p] * row_bytes);
    for (std::vector<u8>& part : parts) places.push_back(part.data());
    split_rows(any.data(), any.data(), words, owners.data(), ranks, rows.data(), row_bytes, places.data());
    std::vector<i64> ids(total);
    std::vector<u8> joined(total * row_bytes);
    std::vector<u8> dense(units * row_bytes, 1);
    std::vector<std::vector<u64>> numbers;
    std::vector<u64*> lists;
    for (u64 count : counts) numbers.emplace_back(count);
    for (std::vector<u64>& list : numbers) lists.push_back(list.data());
    demand(list_units(any.data(), words, owners.data(), ranks, ids.data(), lists.data()) ==
               static_cast<i64>(total),
           "list of the union");
    for (u64 p = 0; p < ranks; ++p) place_rows(lists[p], counts[p], places[p], row_bytes, joined.data());
    demand(joined == rows, "rows are split and joined");
    join_dense(any.data(), units, owners.data(), ranks, places.data(), row_bytes, dense.data());
    for (u64 i = 0; i < total; ++i)
        demand(std::memcmp(dense.data() + static_cast<u64>(ids[i]) * row_bytes, rows.data() + i * row_bytes,
                           row_bytes) == 0,
               "rows in a dense tensor");
}

// The range coder at every width: all integers come back; those that have more bits, as values that are not
// what a scheme says may give, and rubbish, are refused.
void coded_integers() {
    for (u32 bits = 2; bits <= MOST_CODED_BITS; ++bits) {
        const int most = (1 << (bits - 1)) - 1;
        std::vector<int> numbers(300), decoded(300);
        for (int& number : numbers) number = static_cast<int>(below(2 * static_cast<u64>(most) + 1)) - most;
        numbers[0] = most, numbers[1] = -most;
        std::vector<u8> out(4 * numbers.size() + 64);
        const u64 bytes = encode_chunk(numbers.data(), numbers.size(), bits, out.data(), out.size());
        demand(bytes != 0, "room for coded integers");
        const std::vector<u8> exact(out.begin(), out.begin() + static_cast<i64>(bytes));
        demand(decode_chunk(exact.data(), bytes, numbers.size(), bits, decoded.data()) && decoded == numbers,
               "coded integers");
        for (const int wide : {-most - 1, most + 2, 2 * most + 1, 1 << 27, 2147483647, -2147483647}) {
            std::vector<int> wider = numbers;
            wider[below(wider.size())] = wide;
            demand(encode_chunk(wider.data(), wider.size(), bits, out.data(), out.size()) == 0,
                   "an integer of more bits was coded");
        }
        std::vector<u8> damaged(bytes);
        for (u8& byte : damaged) byte = static_cast<u8>(below(256));
        decode_chunk(damaged.data(), bytes, numbers.size(), bits, decoded.data());
    }
}

}  // namespace

int main() {
    coded_integers();
    for (u64 ranks : {1ULL, 2ULL, 3ULL, 9ULL, 70ULL})
        for (u64 units : {1ULL, 64ULL, 1000ULL, 20000ULL / SHARE})
            for (u64 one_in : {1ULL, 5ULL, 300ULL}) among_holders(ranks, units, one_in, 2 + 3 * (units % 3));
    every_density();
    every_block();
    for (const i64 format : {FORMAT_ELIAS_FANO, FORMAT_BLOCK, FORMAT_BLOCK + 3, LAST_FORMAT}) rubbish(format);
    for (u64 slots : {0ULL, 1ULL, 64ULL, 1000ULL})
        for (i64 format : {FORMAT_DENSE, FORMAT_COO, FORMAT_BITMAP, FORMAT_ELIAS_FANO})
            sealed_and_opened(slots, format);
    parts_of_slots();
    one_by_one_as_in_vectors();
    every_kernel<float>();
    every_kernel<f16>();
#ifndef TRY_FEW
    every_kernel<double>();
    every_kernel<bf16>();
#endif
    return 0;
}
