#include "engine/shared_memory.h"

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>

#include "engine/sanitizers.h"

namespace emulator {

namespace {

constexpr size_t ARENA = size_t{1} << 28;
constexpr size_t LINE = 64;
constexpr int NEVER_WRITTEN = 0xCD;

size_t lines(size_t bytes) {
    return (bytes + LINE - 1) / LINE * LINE;
}

}  // namespace

SharedMemory::~SharedMemory() {
    begin_launch();
}

void SharedMemory::begin_launch() {
    if (!thread_sanitizer())
        for (const Array& array : arrays_) std::free(array.memory);
    arrays_.clear();
    total_ = 0;
}

void SharedMemory::begin_block() {
    if (thread_sanitizer()) return begin_launch();
    for (Array& array : arrays_) array.in_use = false;
    total_ = 0;
}

void* SharedMemory::array(const void* tag, size_t bytes) {
    Unseen unseen;  // making and filling it is nobody's access
    for (Array& array : arrays_) {
        if (array.tag != tag) continue;
        if (!array.in_use) {
            std::memset(array.memory, NEVER_WRITTEN, bytes);
            array.in_use = true;
            total_ += bytes;
        }
        return array.memory;
    }
    if (total_ + bytes > MOST_SHARED) return nullptr;
    void* memory = thread_sanitizer()    ? unused(bytes)
                   : address_sanitizer() ? std::malloc(bytes)
                                         : std::aligned_alloc(LINE, lines(bytes));
    if (!memory) throw std::bad_alloc();
    std::memset(memory, NEVER_WRITTEN, bytes);
    arrays_.push_back({tag, memory, bytes, true});
    total_ += bytes;
    return memory;
}

bool SharedMemory::has(const void* at, size_t bytes) const {
    for (const Array& array : arrays_) {
        const auto first = reinterpret_cast<std::uintptr_t>(array.memory);
        const std::uintptr_t offset = reinterpret_cast<std::uintptr_t>(at) - first;
        if (array.in_use && offset <= array.bytes && bytes <= array.bytes - offset) return true;
    }
    return false;
}

void* SharedMemory::unused(size_t bytes) {
    bytes = lines(bytes);
    if (arena_left_ <
        bytes) {  // by the bare system call: race detectors would make all of their shadow for it
        arena_left_ = ARENA;
        const long memory = syscall(SYS_mmap, nullptr, ARENA, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == -1) throw std::bad_alloc();
        arena_ = reinterpret_cast<char*>(memory);
    }
    void* memory = arena_;
    arena_ += bytes;
    arena_left_ -= bytes;
    return memory;
}

}  // namespace emulator
