// Versions, and communicators from their beginning to their end.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>

#include "nccl/communicator.h"

namespace emulator {

Handles<Communicator> communicators;

namespace {

constexpr int VERSION = 22809;
constexpr unsigned MAGIC = 0xcafebeef;
constexpr int UNDEFINED = static_cast<int>(0x80000000);
constexpr int MOST_BLOCKS = 64;

std::atomic<int> max_blocks{0};

std::shared_ptr<World> world_of(const UniqueId& id, int size) {
    static std::mutex mutex;
    static std::map<std::string, std::weak_ptr<World>> worlds;
    Unseen unseen;
    const std::lock_guard lock(mutex);
    std::weak_ptr<World>& known = worlds[id.text];
    std::shared_ptr<World> world = known.lock();
    if (!world) known = world = std::make_shared<World>(size);
    return world;
}

int open(Communicator** out, int size, const UniqueId& id, int rank, bool blocking) {
    if (const int code = fault("ncclCommInitRank", current_device())) return code;
    if (size < 1) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    const std::shared_ptr<World> world = world_of(id, size);
    if (const int result = world->join(rank, size)) return result;
    *out = new Communicator{world, rank, blocking, blocking, "", std::make_shared<const char>()};
    communicators.add(*out);
    if (!blocking) return NCCL_IN_PROGRESS;
    return world->wait_until_complete(rank) ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
}

}  // namespace

}  // namespace emulator

using namespace emulator;

// EMULATOR_NCCL is the version to claim.
int ncclGetVersion(int* version) {
    const char* claimed = std::getenv("EMULATOR_NCCL");
    *version = claimed ? std::atoi(claimed) : VERSION;
    return NCCL_SUCCESS;
}

int ncclGetUniqueId(UniqueId* id) {
    static std::atomic<int> count{0};
    *id = {};
    std::snprintf(id->text, sizeof id->text, "emulator %d", count++);
    return NCCL_SUCCESS;
}

int ncclCommInitRank(Communicator** communicator, int size, UniqueId id, int rank) {
    return open(communicator, size, id, rank, true);
}

int ncclCommInitRankConfig(Communicator** communicator, int size, UniqueId id, int rank,
                           const Config* config) {
    if (config && config->magic != MAGIC) return NCCL_INVALID_ARGUMENT;
    max_blocks = config && config->max_blocks != UNDEFINED ? config->max_blocks : 0;
    if (max_blocks < 0 || max_blocks > MOST_BLOCKS) return NCCL_INVALID_ARGUMENT;
    return open(communicator, size, id, rank, !config || config->blocking != 0);
}

int emulator_max_blocks() {
    return max_blocks;
}

// Waits as NCCL does since 2.26, without end, and without a look at whether it was aborted.
static void wait_for_graphs(const Communicator& communicator) {
    while (communicator.held.use_count() > 1) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

int ncclCommDestroy(Communicator* communicator) {
    if (!communicators.remove(communicator)) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    wait_for_graphs(*communicator);
    delete communicator;
    return NCCL_SUCCESS;
}

int ncclCommAbort(Communicator* communicator) {
    if (!communicators.remove(communicator)) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    communicator->world->abort(communicator->rank);
    wait_for_graphs(*communicator);
    delete communicator;
    return NCCL_SUCCESS;
}

int ncclCommGetAsyncError(Communicator* communicator, int* error) {
    if (!communicators.has(communicator)) return NCCL_INVALID_ARGUMENT;
    *error = fault("ncclCommGetAsyncError", communicator->rank);
    if (!*error) *error = communicator->world->error(communicator->rank);
    if (*error || communicator->settled) return NCCL_SUCCESS;
    *error = NCCL_IN_PROGRESS;  // at least once
    communicator->settled = communicator->world->complete();
    return NCCL_SUCCESS;
}

const char* ncclGetErrorString(int result) {
    switch (result) {
        case NCCL_SUCCESS:
            return "no error";
        case NCCL_UNHANDLED_CUDA_ERROR:
            return "unhandled cuda error (run with NCCL_DEBUG=INFO for details)";
        case NCCL_SYSTEM_ERROR:
            return "unhandled system error";
        case NCCL_INVALID_ARGUMENT:
            return "invalid argument";
        case NCCL_INVALID_USAGE:
            return "invalid usage";
        case NCCL_REMOTE_ERROR:
            return "remote process exited or there was a network error";
        case NCCL_IN_PROGRESS:
            return "NCCL operation in progress";
        default:
            return "internal error";
    }
}

// Lives as long as the communicator, or until it is asked for again.
const char* ncclGetLastError(Communicator* communicator) {
    if (!communicators.has(communicator)) return "";
    Unseen unseen;
    communicator->message = communicator->world->message(communicator->rank);
    return communicator->message.c_str();
}
