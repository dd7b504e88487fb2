// NCCL for ranks that are threads of one process and share a GPU: messages are copies on their streams, in
// the order that events give them. The driver is the one at the path DRIVER, so that it runs on the emulator
// too.
//
// What zenc_host/driver.h binds is here, strictly: the end of a group blocks until all its messages have
// met their other sides, or another thread aborts, and nothing waits on the device for what a host has still
// to do.
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "all_reduce.h"

using namespace zenc;

namespace {

constexpr int VERSION = 22809;
constexpr unsigned MAGIC = 0xcafebeef;
constexpr ncclResult_t CUDA_ERROR = 1, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5,
                       REMOTE_ERROR = 6;

struct Message {
    bool sends;
    void* memory;
    u64 bytes;
    int peer;
    bool done;
};

// Posts of a rank at once, and their place on its stream.
struct Group {
    CUstream stream;
    CUevent posted;
    std::vector<Message> messages;
};

struct Rank {
    bool joined = false, aborted = false;
    std::unique_ptr<Group> group;  // until all of it is on the streams
    std::unique_ptr<Reduction> reduction;
    ncclResult_t error = ncclSuccess;
};

struct World {
    std::vector<Rank> ranks;
    AllReduce all_reduce;
};

std::mutex mutex;  // of all worlds
std::condition_variable changed;

// Calls of this thread since ncclGroupStart.
thread_local int depth = 0;
thread_local std::vector<Message> posted;
thread_local ncclComm_t posted_to = nullptr;
thread_local CUstream posted_on = nullptr;

}  // namespace

// A rank's end.
struct zenc::ncclComm {
    std::shared_ptr<World> world;
    int rank;

    Rank& own() const { return world->ranks[static_cast<u64>(rank)]; }
};

namespace {

bool bind_driver() {
    static char why[256];
    static const bool bound = bind_cuda(DRIVER, api, {why, sizeof why});
    if (!bound) std::fprintf(stderr, "%s\n", why);
    return bound;
}

void fail(Rank& rank, ncclResult_t error) {
    if (rank.error == ncclSuccess) rank.error = error;
}

void drop(Rank& rank) {
    if (rank.group) api.cuEventDestroy_v2(rank.group->posted);
    rank.group.reset();
    rank.reduction.reset();
}

// The receiver's stream copies when the sender has got so far, and the sender's goes on when that is done.
CUresult copy(const Group& sender, const Message& from, const Group& receiver, const Message& to) {
    CUevent copied = nullptr;
    CUresult result = api.cuStreamWaitEvent(receiver.stream, sender.posted, 0);
    const auto then = [&](CUresult next) { result = result == CUDA_SUCCESS ? next : result; };
    then(api.cuMemcpyDtoDAsync_v2(reinterpret_cast<CUdeviceptr>(to.memory),
                                  reinterpret_cast<CUdeviceptr>(from.memory), to.bytes, receiver.stream));
    then(api.cuEventCreate(&copied, CU_EVENT_DISABLE_TIMING));
    if (copied == nullptr) return result;
    then(api.cuEventRecord(copied, receiver.stream));
    then(api.cuStreamWaitEvent(sender.stream, copied, 0));
    api.cuEventDestroy_v2(copied);
    return result;
}

Message* partner(Group& of_peer, int rank, bool sends) {
    for (Message& message : of_peer.messages)
        if (!message.done && message.peer == rank && message.sends != sends) return &message;
    return nullptr;
}

void meet(World& world, int rank, Message& own) {
    Rank &mine = world.ranks[static_cast<u64>(rank)], &other = world.ranks[static_cast<u64>(own.peer)];
    if (own.done || !other.group) return;
    Message* const match = partner(*other.group, rank, own.sends);
    if (match == nullptr) return;
    ncclResult_t result = INVALID_ARGUMENT;
    if (match->bytes == own.bytes) {
        const CUresult copied = own.sends ? copy(*mine.group, own, *other.group, *match)
                                          : copy(*other.group, *match, *mine.group, own);
        result = copied == CUDA_SUCCESS ? ncclSuccess : CUDA_ERROR;
    }
    fail(mine, result);
    fail(other, result);
    own.done = match->done = true;
}

// Puts messages with both of their sides on the streams; a group without further messages ends.
void settle(World& world) {
    for (u64 rank = 0; rank < world.ranks.size(); ++rank) {
        if (!world.ranks[rank].group) continue;
        bool done = true;
        for (Message& own : world.ranks[rank].group->messages) {
            meet(world, static_cast<int>(rank), own);
            if (!own.done && world.ranks[static_cast<u64>(own.peer)].aborted)
                fail(world.ranks[rank], REMOTE_ERROR);
            done &= own.done;
        }
        if (done) drop(world.ranks[rank]);
    }
}

// The all-reduce that every rank has posted, or that can't be any more.
void reduce(World& world) {
    std::vector<Reduction> all;
    bool aborted = false, alike = true;
    for (const Rank& rank : world.ranks) {
        aborted |= rank.aborted;
        if (rank.reduction) all.push_back(*rank.reduction);
        alike &= !rank.reduction || rank.reduction->words == all[0].words;
    }
    if (all.size() < world.ranks.size() && !aborted) return;
    ncclResult_t result = aborted ? REMOTE_ERROR : alike ? ncclSuccess : INVALID_ARGUMENT;
    if (result == ncclSuccess && world.all_reduce.run(all) != CUDA_SUCCESS) result = CUDA_ERROR;
    for (Rank& rank : world.ranks) {
        if (rank.reduction) fail(rank, result);
        rank.reduction.reset();
    }
}

// Until something is done for a rank, or can't be any more. Who aborts takes the communicator away.
template <class Done>
ncclResult_t wait(std::unique_lock<std::mutex>& lock, const ncclComm& communicator, const Done& done) {
    const std::shared_ptr<World> world = communicator.world;
    const Rank& own = communicator.own();
    changed.wait(lock, [&] { return own.aborted || own.error != ncclSuccess || done(own); });
    return own.aborted ? REMOTE_ERROR : own.error;
}

ncclResult_t post(ncclComm_t communicator, CUstream stream, std::vector<Message> messages) {
    std::unique_lock lock(mutex);
    Rank& own = communicator->own();
    if (own.group || own.reduction || own.error != ncclSuccess) return INVALID_USAGE;
    auto group = std::make_unique<Group>(Group{stream, nullptr, std::move(messages)});
    if (api.cuEventCreate(&group->posted, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS) return CUDA_ERROR;
    own.group = std::move(group);
    if (api.cuEventRecord(own.group->posted, stream) != CUDA_SUCCESS) return CUDA_ERROR;
    settle(*communicator->world);
    changed.notify_all();
    return wait(lock, *communicator, [](const Rank& rank) { return !rank.group; });
}

ncclResult_t add(ncclComm_t communicator, CUstream stream, const Message& message) {
    const bool is_rank =
        message.peer >= 0 && static_cast<u64>(message.peer) < communicator->world->ranks.size();
    if (depth == 0 || (posted_to != nullptr && (posted_to != communicator || posted_on != stream)))
        return INVALID_USAGE;
    if (!is_rank || message.peer == communicator->rank) return INVALID_ARGUMENT;
    posted_to = communicator;
    posted_on = stream;
    posted.push_back(message);
    return ncclSuccess;
}

std::shared_ptr<World> world_of(const ncclUniqueId& id, int size) {
    static std::map<std::string, std::weak_ptr<World>> worlds;
    std::weak_ptr<World>& known = worlds[id.internal];
    std::shared_ptr<World> world = known.lock();
    if (!world) {
        known = world = std::make_shared<World>();
        world->ranks.resize(static_cast<u64>(size));
    }
    return world;
}

ncclResult_t join(const std::shared_ptr<World>& world, int size, int rank) {
    const bool fits = size >= 1 && world->ranks.size() == static_cast<u64>(size) && rank >= 0 && rank < size;
    if (!fits || world->ranks[static_cast<u64>(rank)].joined) return INVALID_ARGUMENT;
    world->ranks[static_cast<u64>(rank)].joined = true;
    return ncclSuccess;
}

bool complete(const World& world) {
    for (const Rank& rank : world.ranks)
        if (!rank.joined) return false;
    return true;
}

// Messages that the rank has not sent are never sent.
ncclResult_t leave(ncclComm_t communicator, bool aborts) {
    const std::lock_guard lock(mutex);
    communicator->own().aborted = aborts;
    drop(communicator->own());
    settle(*communicator->world);
    if (aborts) reduce(*communicator->world);
    changed.notify_all();
    delete communicator;
    return ncclSuccess;
}

}  // namespace

extern "C" {

ZENC_EXPORT ncclResult_t ncclGetVersion(int* version) {
    *version = VERSION;
    return ncclSuccess;
}

ZENC_EXPORT const char* ncclGetErrorString(ncclResult_t result) {
    constexpr const char* TEXTS[] = {"no error",       "unhandled cuda error", "unhandled system error",
                                     "internal error", "invalid argument",     "invalid usage",
                                     "a peer gave up"};
    return result >= ncclSuccess && result <= REMOTE_ERROR ? TEXTS[result] : "unknown result";
}

ZENC_EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    static int count = 0;
    const std::lock_guard lock(mutex);
    *id = {};
    std::snprintf(id->internal, sizeof id->internal, "one GPU %d", count++);
    return ncclSuccess;
}

ZENC_EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int size, ncclUniqueId id, int rank,
                                                ncclConfig_t* config) {
    if (!bind_driver()) return SYSTEM_ERROR;
    if (config == nullptr || config->magic != MAGIC || config->blocking == 0) return INVALID_USAGE;
    std::unique_lock lock(mutex);
    const std::shared_ptr<World> world = world_of(id, size);
    if (const ncclResult_t result = join(world, size, rank)) return result;
    const ncclComm_t made = *communicator = new ncclComm{world, rank};
    changed.notify_all();
    return wait(lock, *made, [&](const Rank&) { return complete(*world); });
}

ZENC_EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
    const std::lock_guard lock(mutex);
    *error = communicator->own().error;
    return ncclSuccess;
}

ZENC_EXPORT ncclResult_t ncclCommAbort(ncclComm_t communicator) {
    return leave(communicator, true);
}

ZENC_EXPORT ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
    return leave(communicator, false);
}

ZENC_EXPORT ncclResult_t ncclGroupStart() {
    ++depth;
    return ncclSuccess;
}

ZENC_EXPORT ncclResult_t ncclGroupEnd() {
    if (depth == 0) return INVALID_USAGE;
    if (--depth != 0 || posted.empty()) return ncclSuccess;
    return post(std::exchange(posted_to, nullptr), posted_on, std::exchange(posted, {}));
}

ZENC_EXPORT ncclResult_t ncclSend(const void* from, unsigned long count, int type, int peer,
                                  ncclComm_t communicator, CUstream stream) {
    if (type != ncclUint8) return INVALID_ARGUMENT;
    return add(communicator, stream, {true, const_cast<void*>(from), count, peer, false});
}

ZENC_EXPORT ncclResult_t ncclRecv(void* to, unsigned long count, int type, int peer, ncclComm_t communicator,
                                  CUstream stream) {
    if (type != ncclUint8) return INVALID_ARGUMENT;
    return add(communicator, stream, {false, to, count, peer, false});
}

// The greatest of each of the 64-bit words, as calls ask for. It waits for the streams of all ranks.
ZENC_EXPORT ncclResult_t ncclAllReduce(const void* from, void* to, unsigned long words, int type, int op,
                                       ncclComm_t communicator, CUstream stream) {
    if (type != ncclUint64 || op != ncclMax || words > MOST_WORDS) return INVALID_ARGUMENT;
    std::unique_lock lock(mutex);
    Rank& own = communicator->own();
    if (depth != 0 || own.group || own.reduction || own.error != ncclSuccess) return INVALID_USAGE;
    own.reduction = std::make_unique<Reduction>(Reduction{from, to, words, stream});
    reduce(*communicator->world);
    changed.notify_all();
    return wait(lock, *communicator, [](const Rank& rank) { return !rank.reduction; });
}
}
