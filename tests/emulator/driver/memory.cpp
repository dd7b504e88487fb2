// Memory, and what is done to it on a stream. That of devices is memory like any other, and never 0 at first.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver/capture.h"
#include "driver/context.h"

namespace emulator {

namespace {

constexpr size_t ALIGNMENT = 256;
constexpr int NEVER_WRITTEN = 0xCD;

std::atomic<int> under_way[DEVICES];
Handles<void> memories[2];  // of devices, of hosts
enum Kind { DEVICE, HOST };

Result allocate(const char* function, Kind kind, size_t bytes, void** out) {
    if (const Result result = ready(function)) return result;
    if (bytes == 0) return INVALID_VALUE;
    if (const Result result = check_unsafe()) return result;
    if (under_way[current_device()]) {
        std::fprintf(stderr, "emulator: %s on device %d behind messages that are under way\n", function,
                     current_device());
        return ILLEGAL_STATE;
    }
    Unseen unseen;  // it is nobody's until it is given out
    *out = address_sanitizer()
               ? std::malloc(bytes)
               : std::aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    if (!*out) return OUT_OF_MEMORY;
    std::memset(*out, NEVER_WRITTEN, bytes);
    memories[kind].add(*out);
    return SUCCESS;
}

// Frees memory at once, whatever still runs: then an address sanitizer reports what still uses it.
Result deallocate(Kind kind, void* memory) {
    if (!current_context()) return INVALID_CONTEXT;
    if (!memory) return SUCCESS;
    if (const Result result = check_unsafe()) return result;
    void* found = memories[kind].remove(memory);
    std::free(found);
    return found ? SUCCESS : INVALID_VALUE;
}

void* at(Address address) {
    return reinterpret_cast<void*>(address);
}

Result copy(const char* function, void* to, const void* from, size_t bytes, Stream* stream) {
    if (const Result result = ready(function)) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (bytes && (!to || !from)) return INVALID_VALUE;
    return submit(stream, [=] {
        if (!has_error()) std::memcpy(to, from, bytes);
        if (emulator_watcher) emulator_watcher(function, 2 * bytes);
    });
}

}  // namespace

void begin_messages(int device) {
    ++under_way[device];
}

void end_messages(int device) {
    --under_way[device];
}

}  // namespace emulator

using namespace emulator;

extern "C" {

Result cuMemAlloc_v2(Address* out, size_t bytes) {
    void* memory = nullptr;
    const Result result = allocate("cuMemAlloc", DEVICE, bytes, &memory);
    if (result == SUCCESS) *out = reinterpret_cast<Address>(memory);
    return result;
}

Result cuMemFree_v2(Address memory) {
    return deallocate(DEVICE, at(memory));
}

Result cuMemHostAlloc(void** out, size_t bytes, unsigned) {
    return allocate("cuMemHostAlloc", HOST, bytes, out);
}

Result cuMemFreeHost(void* memory) {
    return deallocate(HOST, memory);
}

Result cuMemcpyAsync(Address to, Address from, size_t bytes, Stream* stream) {
    return copy("cuMemcpyAsync", at(to), at(from), bytes, stream);
}

Result cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, Stream* stream) {
    return copy("cuMemcpyHtoDAsync", at(to), from, bytes, stream);
}

Result cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, Stream* stream) {
    return copy("cuMemcpyDtoHAsync", to, at(from), bytes, stream);
}

Result cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, Stream* stream) {
    return copy("cuMemcpyDtoDAsync", at(to), at(from), bytes, stream);
}

Result cuMemsetD8Async(Address memory, unsigned char value, size_t bytes, Stream* stream) {
    if (const Result result = ready("cuMemsetD8Async")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    return submit(stream, [=] {
        if (!has_error()) std::memset(at(memory), value, bytes);
        if (emulator_watcher) emulator_watcher("cuMemsetD8Async", bytes);
    });
}

Result cuMemsetD32Async(Address memory, unsigned value, size_t words, Stream* stream) {
    if (const Result result = ready("cuMemsetD32Async")) return result;
    if (!is_stream(stream)) return INVALID_HANDLE;
    if (memory % sizeof value) return INVALID_VALUE;
    return submit(stream, [=] {
        if (has_error()) return;
        for (size_t i = 0; i < words; i++) std::memcpy(at(memory + sizeof value * i), &value, sizeof value);
    });
}
}
