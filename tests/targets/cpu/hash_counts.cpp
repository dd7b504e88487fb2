// hash_counts K SEED UNITS PARTS N REPEATS R1 R2: puts N distinct units, at random, REPEATS times each into
// the memory of hierarchical hashing, demands that exactly they come out, and prints where they were: one
// number for each function, then how often units were repeated, in the serial memory, and in the list.
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <random>
#include <vector>

#include "zenc_cpu/pack/hash_memory.h"

using namespace zenc;

int main(int, char** given) {
    const auto integer = [&](int i) { return std::strtoull(given[i], nullptr, 0); };
    const int k = std::atoi(given[1]);
    const u64 seed = integer(2);
    const u64 units = integer(3);
    const u64 parts = integer(4);
    const u64 n = integer(5);
    std::vector<u64> tables(HashTables::words(units, parts));
    HashTables(units, parts, tables.data()).build(HashFunction(seed, 0), units, parts);
    const HashInMemory mapping(seed, k, std::atof(given[7]), std::atof(given[8]), units, parts,
                               tables.data());
    std::vector<u64> order(units);
    std::iota(order.begin(), order.end(), 0);
    std::shuffle(order.begin(), order.end(), std::mt19937_64(seed));
    HashMemory memory(mapping, n * integer(6));
    if (memory.failed()) return 1;
    for (u64 i = 0; i < n * integer(6); ++i)
        if (!memory.insert(mapping.part(order[i % n]), order[i % n])) return 1;
    std::vector<int> found(units);
    bool right = true;
    memory.for_each_batch([&](u64 part, const u32* out, u64 some) {
        for (u64 i = 0; i < some; ++i) {
            right = right && part == mapping.part(out[i]);
            ++found[out[i]];
        }
    });
    for (u64 i = 0; i < units; ++i) right = right && (found[order[i]] != 0) == (i < n);
    if (!right) return 2;
    for (int i = 0; i < k; ++i) std::printf("%llu ", memory.counts().parallel[i]);
    std::printf("%llu %llu %llu\n", memory.counts().repeated, memory.counts().serial,
                memory.counts().overflow);
    return 0;
}
