// Posts on streams: sends, receives and reductions, in groups or alone.
#include <cstdint>
#include <cstdio>
#include <map>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "driver/capture.h"
#include "nccl/communicator.h"
#include "nccl/places.h"

namespace emulator {

namespace {

struct Posted {
    Communicator* communicator;
    Stream* stream;
    std::variant<Transfer, Reduction> work;
};

// Calls of this thread since ncclGroupStart.
thread_local int depth = 0;
thread_local std::vector<Posted> posted;

// Puts what was posted for one communicator on its stream. In a capture its groups keep their order too. To
// connect to a peer that says nothing ("mute", on demand) may take for ever, on the host: until another
// thread aborts, and then the communicator is no more.
int post(Communicator& communicator, Group posted_now, Stream* stream) {
    posted_now.rank = communicator.rank;
    if (fault("mute", communicator.rank)) {
        const std::shared_ptr<World> world = communicator.world;
        return world->wait_until_aborted(posted_now.rank) ? NCCL_REMOTE_ERROR : NCCL_SYSTEM_ERROR;
    }
    communicator.settled = communicator.blocking;
    const auto begin = [world = communicator.world, posted_now, held = communicator.held,
                        device = current_device()](Stream* stream) {
        begin_messages(device);
        auto group = std::make_shared<Group>(posted_now);
        world->post(*group, stream);
        if (fault("dead", group->rank)) world->die(group->rank);
        return [world, group, device] {
            const Place place(device, *world, group->rank);
            world->run(*group);
            end_messages(device);
        };
    };
    if (submit(stream, begin, &communicator)) return NCCL_UNHANDLED_CUDA_ERROR;
    return communicator.blocking ? NCCL_SUCCESS : NCCL_IN_PROGRESS;
}

// In the order in which communicators came first.
int post_all() {
    int result = NCCL_SUCCESS;
    const std::vector<Posted> all = std::exchange(posted, {});
    std::map<Communicator*, Group> groups;
    std::vector<Posted> first;
    for (const Posted& one : all) {
        if (!groups.count(one.communicator)) first.push_back(one);
        std::visit([&](const auto& work) { groups[one.communicator].add(work); }, one.work);
        for (const Posted& other : first)
            if (other.communicator == one.communicator && other.stream != one.stream)
                return NCCL_INVALID_USAGE;
    }
    for (const Posted& one : first)
        if (const int code = post(*one.communicator, std::move(groups[one.communicator]), one.stream))
            result = code;
    for (const Posted& one : first)  // unless it was aborted meanwhile
        if (communicators.has(one.communicator)) one.communicator->user = std::thread::id();
    return result;
}

// Whether no other thread has the communicator in a group that it has not ended: NCCL's communicators are of
// one thread at a time.
bool take(Communicator& communicator) {
    std::thread::id nobody;
    const std::thread::id own = std::this_thread::get_id();
    if (communicator.user.compare_exchange_strong(nobody, own) || nobody == own) return true;
    std::fprintf(stderr, "emulator: NCCL on rank %d: two threads use a communicator at once\n",
                 communicator.rank);
    return false;
}

bool fits(const Communicator& communicator, const Transfer& transfer) {
    return communicator.world->is_rank(transfer.peer) && (transfer.memory || !transfer.count);
}

// In place, or from other memory altogether.
bool fits(const Communicator&, const Reduction& reduction) {
    const auto from = reinterpret_cast<uintptr_t>(reduction.from),
               to = reinterpret_cast<uintptr_t>(reduction.to);
    const size_t bytes = reduction.count * bytes_of(reduction.type);
    if (reduction.op < 0 || reduction.op >= REDUCTIONS || !is_reduced(reduction.type)) return false;
    if (reduction.count && (!from || !to)) return false;
    return from == to || from + bytes <= to || to + bytes <= from;
}

template <class Work>
int add(const char* function, Communicator* communicator, Stream* stream, const Work& work) {
    if (const int code = fault(function, current_device())) return code;
    if (!communicators.has(communicator) || !is_stream(stream)) return NCCL_INVALID_ARGUMENT;
    if (work.type < 0 || work.type >= TYPES || !communicator->settled) return NCCL_INVALID_ARGUMENT;
    if (!fits(*communicator, work)) return NCCL_INVALID_ARGUMENT;
    if (const int error = communicator->world->error(communicator->rank)) return error;
    if (!take(*communicator)) return NCCL_INVALID_USAGE;
    posted.push_back({communicator, stream, work});
    return depth ? NCCL_SUCCESS : post_all();
}

}  // namespace

}  // namespace emulator

using namespace emulator;

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
    const Transfer transfer = {true, const_cast<void*>(from), count, type, peer, false};
    return add("ncclSend", communicator, stream, transfer);
}

int ncclRecv(void* to, size_t count, int type, int peer, Communicator* communicator, Stream* stream) {
    return add("ncclRecv", communicator, stream, Transfer{false, to, count, type, peer, false});
}

int ncclAllReduce(const void* from, void* to, size_t count, int type, int op, Communicator* communicator,
                  Stream* stream) {
    return add("ncclAllReduce", communicator, stream, Reduction{from, to, count, type, op});
}
