// streams LIBRARY HOW FAULT: two ranks, each with two streams, send numbers to each other and agree on the
// greatest; with one fault of the host. LIBRARY has the kernel add_one. HOW is direct, or graph: work is
// captured, and launched twice. FAULT is none, early_event, no_wait, early_free or silent.
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>

#include "nccl/nccl.h"

namespace {

using namespace emulator;

constexpr size_t N = 1000;
constexpr int UINT64 = 5, MAXIMUM = 2, THREAD_LOCAL = 1;

std::string how, fault;
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

// The module lasts as long as what was launched of it.
struct Adder {
    void* module = nullptr;
    const Kernel* kernel = nullptr;

    Adder() {
        CHECK(cuModuleLoadData(&module, library));
        CHECK(cuModuleGetFunction(&kernel, module, "add_one"));
    }
    ~Adder() { CHECK(cuModuleUnload(module)); }

    void launch(Address memory, Stream* stream) const {
        u64 n = N;
        void* parameters[] = {&memory, &n};
        CHECK(cuLaunchKernel(kernel, 2, 1, 1, 256, 1, 1, 0, stream, parameters, nullptr));
    }
};

void exchange(const Memory& memory, int peer, Communicator* communicator, Stream* stream) {
    CHECK(ncclGroupStart());
    CHECK(ncclSend(reinterpret_cast<void*>(memory.own), N, UINT64, peer, communicator, stream));
    CHECK(ncclRecv(reinterpret_cast<void*>(memory.other), N, UINT64, peer, communicator, stream));
    CHECK(ncclGroupEnd());
    auto* const own = reinterpret_cast<void*>(memory.own);
    CHECK(ncclAllReduce(own, own, N, UINT64, MAXIMUM, communicator, stream));
}

// The streams of a rank, its event, and an adder.
struct Streams {
    const Adder adder;
    Stream *first = nullptr, *second = nullptr;
    Event* event = nullptr;

    Streams() {
        CHECK(cuStreamCreate(&first, 0));
        CHECK(cuStreamCreate(&second, 0));
        CHECK(cuEventCreate(&event, 0));
    }
    ~Streams() {
        CHECK(cuStreamDestroy_v2(first));
        CHECK(cuStreamDestroy_v2(second));
        CHECK(cuEventDestroy_v2(event));
    }
};

// Sets numbers on one stream, and goes on with them on the other.
void work(int rank, Communicator* communicator, const Memory& memory, const Streams& streams) {
    if (fault == "early_event") CHECK(cuEventRecord(streams.event, streams.first));
    CHECK(cuMemsetD8Async(memory.own, static_cast<unsigned char>(rank), 8 * N, streams.first));
    if (fault != "early_event") CHECK(cuEventRecord(streams.event, streams.first));
    CHECK(cuStreamWaitEvent(streams.second, streams.event, 0));
    streams.adder.launch(memory.own, streams.second);
    if (fault != "silent" || rank == 0) exchange(memory, 1 - rank, communicator, streams.second);
    CHECK(cuMemcpyDtoHAsync_v2(memory.host, memory.other, 8 * N, streams.second));
    CHECK(cuEventRecord(streams.event, streams.second));
    CHECK(cuStreamWaitEvent(streams.first, streams.event, 0));
}

GraphExec* captured(int rank, Communicator* communicator, const Memory& memory, const Streams& streams) {
    Graph* graph = nullptr;
    GraphExec* exec = nullptr;
    CHECK(cuStreamBeginCapture_v2(streams.first, THREAD_LOCAL));
    work(rank, communicator, memory, streams);
    CHECK(cuStreamEndCapture(streams.first, &graph));
    CHECK(cuGraphInstantiateWithFlags(&exec, graph, 0));
    CHECK(cuGraphDestroy(graph));
    return exec;
}

// Returns what came from the peer.
u64 play(int rank, Communicator* communicator) {
    const Streams streams;
    const Memory memory;
    GraphExec* exec = how == "graph" ? captured(rank, communicator, memory, streams) : nullptr;
    if (!exec) work(rank, communicator, memory, streams);
    if (fault == "early_free") CHECK(cuMemFree_v2(memory.own));
    for (int i = 0; exec && i < 2; i++) CHECK(cuGraphLaunch(exec, streams.first));
    if (fault != "no_wait") CHECK(cuStreamSynchronize(streams.first));
    const u64 result = static_cast<u64*>(memory.host)[N - 1];
    CHECK(cuStreamSynchronize(streams.first));
    if (exec) CHECK(cuGraphExecDestroy(exec));
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
    how = arguments[2];
    fault = arguments[3];
    UniqueId id;
    CHECK(cuInit(0));
    CHECK(ncclGetUniqueId(&id));
    u64 results[2];
    std::thread other(run, id, 1, &results[1]);
    run(id, 0, &results[0]);
    other.join();
    std::printf("%llx %llx\n", results[0], results[1]);
}
