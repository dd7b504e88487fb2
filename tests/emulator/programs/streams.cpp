// streams LIBRARY FAULT: two ranks, each with two streams, send numbers to each other; with one fault of the
// host. LIBRARY has the kernel add_one. FAULT is none, no_event, no_wait, early_free or silent.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "nccl/nccl.h"

namespace {

using namespace emulator;

constexpr size_t N = 1000;
constexpr int UINT64 = 5;

std::string fault;
const char* library;

void check(int result, const char* what) {
    if (result) std::fprintf(stderr, "%s returned %d\n", what, result);
}

#define CHECK(call) check(call, #call)

struct Memory {
    Address own = 0, other = 0;
    void* host = nullptr;

    Memory() {
        CHECK(cuMemAlloc_v2(&own, 8 * N));
        CHECK(cuMemAlloc_v2(&other, 8 * N));
        CHECK(cuMemHostAlloc(&host, 8 * N, 0));
    }
    ~Memory() {
        if (fault != "early_free") CHECK(cuMemFree_v2(own));
        CHECK(cuMemFree_v2(other));
        CHECK(cuMemFreeHost(host));
    }
};

void add_one(Address memory, Stream* stream) {
    void* module = nullptr;
    const Kernel* kernel = nullptr;
    CHECK(cuModuleLoadData(&module, library));
    CHECK(cuModuleGetFunction(&kernel, module, "add_one"));
    u64 n = N;
    void* parameters[] = {&memory, &n};
    CHECK(cuLaunchKernel(kernel, 2, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
}

void exchange(const Memory& memory, int peer, Communicator* communicator, Stream* stream) {
    CHECK(ncclGroupStart());
    CHECK(ncclSend(reinterpret_cast<void*>(memory.own), N, UINT64, peer, communicator, stream));
    CHECK(ncclRecv(reinterpret_cast<void*>(memory.other), N, UINT64, peer, communicator, stream));
    CHECK(ncclGroupEnd());
}

// Sets numbers on one stream, and goes on with them on the other. Returns what came from the peer.
u64 play(int rank, Communicator* communicator) {
    Stream *first = nullptr, *second = nullptr;
    Event* event = nullptr;
    CHECK(cuStreamCreate(&first, 0));
    CHECK(cuStreamCreate(&second, 0));
    CHECK(cuEventCreate(&event, 0));
    u64 result;
    {
        Memory memory;
        CHECK(cuMemsetD8Async(memory.own, static_cast<unsigned char>(rank), 8 * N, first));
        CHECK(cuEventRecord(event, first));
        if (fault != "no_event") CHECK(cuStreamWaitEvent(second, event, 0));
        add_one(memory.own, second);
        if (fault == "early_free") CHECK(cuMemFree_v2(memory.own));
        if (fault != "silent" || rank == 0) exchange(memory, 1 - rank, communicator, second);
        CHECK(cuMemcpyDtoHAsync_v2(memory.host, memory.other, 8 * N, second));
        if (fault != "no_wait") CHECK(cuStreamSynchronize(second));
        result = static_cast<u64*>(memory.host)[N - 1];
        CHECK(cuStreamSynchronize(second));
    }
    CHECK(cuStreamDestroy_v2(first));
    CHECK(cuStreamDestroy_v2(second));
    CHECK(cuEventDestroy_v2(event));
    return result;
}

void run(UniqueId id, int rank, u64* result) {
    Context* context = nullptr;
    Communicator* communicator = nullptr;
    CHECK(cuDevicePrimaryCtxRetain(&context, rank));
    CHECK(cuCtxSetCurrent(context));
    CHECK(ncclCommInitRank(&communicator, 2, id, rank));
    *result = play(rank, communicator);
    CHECK(ncclCommDestroy(communicator));
}

}  // namespace

int main(int, char** arguments) {
    library = arguments[1];
    fault = arguments[2];
    UniqueId id;
    CHECK(cuInit(0));
    CHECK(ncclGetUniqueId(&id));
    u64 results[2];
    std::thread other(run, id, 1, &results[1]);
    run(id, 0, &results[0]);
    other.join();
    std::printf("%llx %llx\n", results[0], results[1]);
}
