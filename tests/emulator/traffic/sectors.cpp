// Sectors of global memory that kernels touch: those compiled with -fsanitize=kernel-address tell every
// access.
#include <cstdint>
#include <mutex>
#include <unordered_set>
#include <vector>

namespace {

constexpr uint64_t SECTOR = 32;        // bytes: the least that a GPU moves between its memory and its caches
constexpr uint64_t STACK = 64 * 1024;  // of a thread

struct Range {
    uint64_t begin, end;
};

std::mutex mutex;
std::vector<Range> ranges;
bool (*is_of_block)(const void* at) = nullptr;  // if all memory counts
std::unordered_set<uint64_t> loaded, stored;

// Whether it is memory of the GPU that counts, not that of a thread or a block.
bool counts(uint64_t at) {
    if (is_of_block != nullptr) {
        const char here = 0;
        const bool of_thread = at - reinterpret_cast<uint64_t>(&here) + STACK < 2 * STACK;
        return !of_thread && !is_of_block(reinterpret_cast<const void*>(at));
    }
    for (const Range& range : ranges)
        if (at >= range.begin && at < range.end) return true;
    return false;
}

void touch(std::unordered_set<uint64_t>& sectors, const void* memory, uint64_t bytes) {
    const uint64_t at = reinterpret_cast<uint64_t>(memory);
    if (!counts(at)) return;
    const std::lock_guard<std::mutex> lock(mutex);
    for (uint64_t sector = at / SECTOR; sector <= (at + bytes - 1) / SECTOR; ++sector) sectors.insert(sector);
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

// Counts sectors of all memory from now on, but not of threads, nor of what `is_of` says is of blocks. With
// null it counts none.
void count_everywhere(bool (*is_of)(const void* at)) {
    is_of_block = is_of;
}

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
