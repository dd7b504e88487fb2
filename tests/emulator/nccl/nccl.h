// NCCL 2.28, as far as it is here: point-to-point and all-reduce, in groups.
#pragma once

#include <cstddef>

#include "driver/cuda.h"

namespace emulator {

class Communicator;

struct UniqueId {
    char text[128];
};

// The configuration of every version: the caller's has `size` bytes, and further fields come after these.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;  // 0: calls return IN_PROGRESS, and the communicator tells when they are done
    int cluster, min_blocks, max_blocks;  // of a kernel
};

constexpr int NCCL_SUCCESS = 0;
constexpr int NCCL_UNHANDLED_CUDA_ERROR = 1;
constexpr int NCCL_SYSTEM_ERROR = 2;
constexpr int NCCL_INVALID_ARGUMENT = 4;
constexpr int NCCL_INVALID_USAGE = 5;
constexpr int NCCL_REMOTE_ERROR = 6;
constexpr int NCCL_IN_PROGRESS = 7;

}  // namespace emulator

extern "C" {
int ncclGetVersion(int* version);
int ncclGetUniqueId(emulator::UniqueId* id);
int ncclCommInitRank(emulator::Communicator** communicator, int size, emulator::UniqueId id, int rank);
int ncclCommInitRankConfig(emulator::Communicator** communicator, int size, emulator::UniqueId id, int rank,
                           const emulator::Config* config);
int ncclCommDestroy(emulator::Communicator* communicator);
int ncclCommAbort(emulator::Communicator* communicator);
int ncclCommGetAsyncError(emulator::Communicator* communicator, int* error);
int ncclGroupStart();
int ncclGroupEnd();
int ncclSend(const void* from, size_t count, int type, int peer, emulator::Communicator* communicator,
             emulator::Stream* stream);
int ncclRecv(void* to, size_t count, int type, int peer, emulator::Communicator* communicator,
             emulator::Stream* stream);
int ncclAllReduce(const void* from, void* to, size_t count, int type, int op,
                  emulator::Communicator* communicator, emulator::Stream* stream);
const char* ncclGetErrorString(int result);

// The limit given to the communicator that was opened last; 0: none.
int emulator_max_blocks();
const char* ncclGetLastError(emulator::Communicator* communicator);
}
