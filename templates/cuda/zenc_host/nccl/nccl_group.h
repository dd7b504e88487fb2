// Messages of a step: the segments of each, and their exchange in NCCL groups.
#pragma once

#include "zenc/control.h"
#include "zenc_host/call/segment_state.h"

namespace zenc {

struct Message {
    i64 peer;
    Several segments;
    bool announced;  // by a control message
    bool counted;    // which has the counts of the segments

    u64 control() const { return announced ? control_bytes(counted ? segments.size() : 0) : 0; }
};

using Messages = std::vector<Message>;

// Has NCCL begin with something, `what`: `post` gets the communicator. It may block, to connect ranks.
template <class Post>
inline void begin(Queue& queue, Communicator& group, const char* what, const Post& post) {
    group.watchdog->arm(queue.call.deadline);
    const ncclResult_t result = post(group.watchdog->communicator());
    if (!group.watchdog->disarm())
        fail(queue.call, DEADLINE_PASSED, -1, "NCCL did not begin with %s within the deadline of %g s", what,
             queue.call.deadline / 1e6);
    else if (result != ncclSuccess)
        fail(queue.call, NCCL_FAILED, -1, "%s failed: %s", what, api.ncclGetErrorString(result));
}

// words [n] on the device become the greatest of all ranks, each by itself.
inline void all_reduce_max(Queue& queue, Communicator& group, u64* words, u64 n) {
    if (!queue.ok()) return;
    queue.in_flight = true;
    begin(queue, group, "an all-reduce", [&](ncclComm_t nccl) {
        return api.ncclAllReduce(words, words, n, ncclUint64, ncclMax, nccl, queue.stream);
    });
}

// The messages of one NCCL group: bytes, to and from several ranks. Messages to one rank stay in their order.
class Exchange {
public:
    Exchange(Queue& queue, Communicator& group) : queue_(queue), group_(group) {}

    void send(i64 peer, const void* from, u64 bytes) { add(peer, const_cast<void*>(from), bytes, true); }
    void receive(i64 peer, void* to, u64 bytes) { add(peer, to, bytes, false); }

    // Puts them on the queue.
    void run() {
        if (!queue_.ok() || transfers_.empty()) return;
        queue_.in_flight = true;
        begin(queue_, group_, "a group of messages", [this](ncclComm_t nccl) { return post(nccl); });
    }

private:
    struct Transfer {
        i64 peer;
        void* memory;
        u64 bytes;
        bool is_send;
    };

    // Both ranks know when a transfer is empty.
    void add(i64 peer, void* memory, u64 bytes, bool is_send) {
        if (bytes != 0) transfers_.push_back({peer, memory, bytes, is_send});
    }

    ncclResult_t post(ncclComm_t nccl) const {
        ncclResult_t result = api.ncclGroupStart();
        for (const Transfer& transfer : transfers_)
            if (result == ncclSuccess) result = post(transfer, nccl);
        const ncclResult_t ended = api.ncclGroupEnd();
        return result == ncclSuccess ? ended : result;
    }

    ncclResult_t post(const Transfer& transfer, ncclComm_t nccl) const {
        const int peer = static_cast<int>(transfer.peer);
        return transfer.is_send
                   ? api.ncclSend(transfer.memory, transfer.bytes, ncclUint8, peer, nccl, queue_.stream)
                   : api.ncclRecv(transfer.memory, transfer.bytes, ncclUint8, peer, nccl, queue_.stream);
    }

    Queue& queue_;
    Communicator& group_;
    std::vector<Transfer> transfers_;
};

}  // namespace zenc
