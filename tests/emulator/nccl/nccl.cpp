#include "nccl/nccl.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <utility>

#include "driver/context.h"
#include "driver/stream.h"
#include "nccl/world.h"

namespace emulator {

// One rank's end.
class Communicator {
public:
    std::shared_ptr<World> world;
    int rank;
    bool blocking;
    bool settled = true;  // false: what was called last must first be asked for
    u64 groups = 0;
    std::string message;  // that a caller was shown
};

namespace {

constexpr int VERSION = 22809;
constexpr int TYPES = 10;
constexpr unsigned MAGIC = 0xcafebeef;

Handles<Communicator> communicators;

struct Posted {
    Communicator* communicator;
    Stream* stream;
    Transfer transfer;
};

// Of this thread's calls since ncclGroupStart.
thread_local int depth = 0;
thread_local std::vector<Posted> posted;

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

// Puts what was posted for one communicator on its stream.
int post(Communicator& communicator, std::vector<Transfer> transfers, Stream* stream) {
    auto group = std::make_shared<Group>();
    group->rank = communicator.rank;
    group->transfers = std::move(transfers);
    group->number = communicator.groups++;
    if (fault("dead", communicator.rank)) communicator.world->die(communicator.rank);
    communicator.settled = communicator.blocking;
    push(stream, [world = communicator.world, group] { world->run(*group); });
    return communicator.blocking ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

int post_all() {
    int result = NCCL_SUCCESS;
    const std::vector<Posted> all = std::exchange(posted, {});
    std::map<Communicator*, std::vector<Transfer>> groups;
    std::map<Communicator*, Stream*> streams;
    for (const Posted& one : all) {
        groups[one.communicator].push_back(one.transfer);
        const auto [entry, first] = streams.emplace(one.communicator, one.stream);
        if (!first && entry->second != one.stream) return NCCL_INVALID_USAGE;
    }
    for (auto& [communicator, transfers] : groups)
        if (const int one = post(*communicator, std::move(transfers), streams[communicator])) result = one;
    return result;
}

int add(const char* function, Communicator* communicator, Stream* stream, const Transfer& transfer) {
    if (const int code = fault(function, current_device())) return code;
    if (!communicators.has(communicator) || !is_stream(stream)) return NCCL_INVALID_ARGUMENT;
    if (transfer.type < 0 || transfer.type >= TYPES || !communicator->settled) return NCCL_INVALID_ARGUMENT;
    if (!communicator->world->is_rank(transfer.peer)) return NCCL_INVALID_ARGUMENT;
    if (transfer.count && !transfer.memory) return NCCL_INVALID_ARGUMENT;
    if (const int error = communicator->world->error(communicator->rank)) return error;
    posted.push_back({communicator, stream, transfer});
    return depth ? NCCL_SUCCESS : post_all();
}

int open(Communicator** out, int size, const UniqueId& id, int rank, bool blocking) {
    if (const int code = fault("ncclCommInitRank", current_device())) return code;
    if (size < 1) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    const std::shared_ptr<World> world = world_of(id, size);
    if (const int result = world->join(rank, size)) return result;
    *out = new Communicator{world, rank, blocking, blocking, 0, ""};
    communicators.add(*out);
    if (!blocking) return NCCL_IN_PROGRESS;
    return world->wait_until_complete() ? NCCL_SUCCESS : NCCL_SYSTEM_ERROR;
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
    return open(communicator, size, id, rank, !config || config->blocking != 0);
}

int ncclCommDestroy(Communicator* communicator) {
    if (!communicators.remove(communicator)) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    delete communicator;
    return NCCL_SUCCESS;
}

int ncclCommAbort(Communicator* communicator) {
    if (!communicators.remove(communicator)) return NCCL_INVALID_ARGUMENT;
    Unseen unseen;
    communicator->world->abort(communicator->rank);
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

int ncclGroupStart() {
    depth++;
    return NCCL_SUCCESS;
}

int ncclGroupEnd() {
    if (depth == 0) return NCCL_INVALID_USAGE;
    if (--depth) return NCCL_SUCCESS;
    const int code = fault("ncclGroupEnd", current_device());
    if (!code) return post_all();
    posted.clear();
    return code;
}

int ncclSend(const void* from, size_t count, int type, int peer, Communicator* communicator, Stream* stream) {
    return add("ncclSend", communicator, stream, {true, const_cast<void*>(from), count, type, peer, false});
}

int ncclRecv(void* to, size_t count, int type, int peer, Communicator* communicator, Stream* stream) {
    return add("ncclRecv", communicator, stream, {false, to, count, type, peer, false});
}

const char* ncclGetErrorString(int result) {
    switch (result) {
        case NCCL_SUCCESS:
            return "no error";
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
