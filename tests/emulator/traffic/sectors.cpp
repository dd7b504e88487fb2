// Sectors of global memory that kernels touch: those compiled with -fsanitize=kernel-address tell every
// access.
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace {

constexpr uint64_t SECTOR = 32;  // bytes: the least that a GPU moves between its memory and its caches

struct Range {
    uint64_t begin, end;
};

std::mutex mutex;
std::vector<Range> ranges;
std::unordered_set<uint64_t> loaded, stored;

void touch(std::unordered_set<uint64_t>& sectors, const void* memory, uint64_t bytes) {
    const uint64_t at = reinterpret_cast<uint64_t>(memory);
    for (const Range& range : ranges) {
        if (at < range.begin || at >= range.end) continue;
        const std::lock_guard<std::mutex> lock(mutex);
        for (uint64_t sector = at / SECTOR; sector <= (at + bytes - 1) / SECTOR; ++sector)
            sectors.insert(sector);
        return;
    }
}

}  // namespace

#define ACCESSES(SIZE)                                  \
    void __asan_load##SIZE##_noabort(const void* at) {  \
        touch(loaded, at, SIZE);                        \
    }                                                   \
    void __asan_store##SIZE##_noabort(const void* at) { \
        touch(stored, at, SIZE);                        \
    }

extern "C" {

ACCESSES(1)
ACCESSES(2)
ACCESSES(4)
ACCESSES(8)
ACCESSES(16)
void __asan_loadN_noabort(const void* at, uint64_t bytes) {
    touch(loaded, at, bytes);
}
void __asan_storeN_noabort(const void* at, uint64_t bytes) {
    touch(stored, at, bytes);
}
void __asan_handle_no_return() {}

// Counts the sectors of this memory from here on; no kernel runs.
void count_memory(uint64_t begin, uint64_t bytes) {
    ranges.push_back({begin, begin + bytes});
}

// The bytes of all sectors that were loaded and stored since the last time, each once.
void take_traffic(uint64_t* bytes) {
    bytes[0] = SECTOR * loaded.size();
    bytes[1] = SECTOR * stored.size();
    loaded.clear();
    stored.clear();
    ranges.clear();
}
}
