// A group of ranks: NCCL's communicator, its watchdog, a thread that makes it, aborts it when a call blocks
// past its deadline, and ends it; and what the calls of one rank share.
#pragma once

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "zenc/segment.h"
#include "zenc_host/memory.h"

namespace zenc {

// Blocks of one of NCCL's kernels, at most, so that those of other communicators, as of DDP, find room beside
// it. A guess: half of what NCCL takes at most on its own. NCCL_MAX_CTAS in the environment comes first.
constexpr int MOST_CTAS = 16;

// The communicator blocks: NCCL then needs no thread for each group. What can block is the rendezvous of all
// ranks, the first message to a peer, and the end, which waits for graphs that hold messages (commDestroySync
// in NCCL's init.cc), also to abort. The first and the last are done on this thread, which who waits can
// leave alone; a group is posted by its caller, and aborted from here. That thread returns from NCCL then,
// and uses the communicator no more.
class Watchdog {
public:
    using Ending = ncclResult_t (*)(ncclComm_t);

    // Begins to make a communicator, together with all ranks. Null if there can be no thread.
    static Watchdog* start(CUcontext context, const ncclUniqueId& id, i64 size, i64 rank) {
        auto* const made = new Watchdog(context, id, static_cast<int>(size), static_cast<int>(rank));
        pthread_t thread;
        if (pthread_create(&thread, nullptr, run, made) != 0) {
            delete made;
            return nullptr;
        }
        pthread_detach(thread);
        return made;
    }

    // Waits until it is made, up to `deadline` microseconds: ncclInProgress if that did not suffice, after
    // which it will not be.
    ncclResult_t wait_until_made(i64 deadline) {
        std::unique_lock lock(mutex_);
        const auto over = [this] { return made_ != ncclInProgress; };
        if (changed_.wait_for(lock, std::chrono::microseconds(deadline), over)) return made_;
        given_up_ = true;
        if (const ncclComm_t begun = __atomic_load_n(&nccl_, __ATOMIC_ACQUIRE)) api.ncclCommAbort(begun);
        return ncclInProgress;
    }

    ncclComm_t communicator() const { return nccl_; }

    // Begins to watch: what the caller does next may block for `deadline` microseconds.
    void arm(i64 deadline) {
        const std::lock_guard lock(mutex_);
        end_ = nanoseconds_now() + 1000 * deadline;
    }

    // Ends the watch. Returns whether it ended in time: else the communicator is aborted.
    bool disarm() {
        const std::lock_guard lock(mutex_);
        end_ = NEVER;
        return !given_up_;
    }

    // Ends the communicator, and waits for that up to `patience` microseconds; then it ends without being
    // waited for. The caller must not use the watchdog any more.
    void finish(Ending how, i64 patience) {
        std::unique_lock lock(mutex_);
        ending_ = how;
        changed_.notify_all();
        changed_.wait_for(lock, std::chrono::microseconds(patience), [this] { return done_; });
        lock.unlock();
        let_go();
    }

private:
    static constexpr i64 NEVER = 0x7fffffffffffffff;
    static constexpr std::chrono::milliseconds PAUSE{100};  // of looking at deadlines

    Watchdog(CUcontext context, const ncclUniqueId& id, int size, int rank)
        : context_(context), id_(id), size_(size), rank_(rank) {}

    static void* run(void* watchdog) {
        auto* const own = static_cast<Watchdog*>(watchdog);
        api.cuCtxSetCurrent(own->context_);
        const BesideCaptures beside;
        own->make();
        own->watch();
        own->let_go();
        return nullptr;
    }

    void make() {
        ncclConfig_t config;
        config.maxCTAs = MOST_CTAS;
        const ncclResult_t made = api.ncclCommInitRankConfig(&nccl_, size_, id_, rank_, &config);
        const std::lock_guard lock(mutex_);
        made_ = made == ncclInProgress ? ncclSuccess : made;
        changed_.notify_all();
    }

    void watch() {
        std::unique_lock lock(mutex_);
        const bool none = given_up_ || nccl_ == nullptr;
        while (ending_ == nullptr && !given_up_) {
            changed_.wait_for(lock, PAUSE);
            if (nanoseconds_now() < end_) continue;
            given_up_ = true;
            ending_ = api.ncclCommAbort;
        }
        const Ending how = ending_;
        lock.unlock();
        if (!none) how(nccl_);
        lock.lock();
        done_ = true;
        changed_.notify_all();
    }

    void let_go() {
        if (holders_.fetch_sub(1) == 1) delete this;
    }

    const CUcontext context_;
    const ncclUniqueId id_;
    const int size_, rank_;
    ncclComm_t nccl_ = nullptr;  // NCCL writes it as soon as there is something to abort
    std::atomic<int> holders_{2};
    std::mutex mutex_;  // of what follows
    std::condition_variable changed_;
    ncclResult_t made_ = ncclInProgress;
    i64 end_ = NEVER;          // in nanoseconds: of what the caller does
    bool given_up_ = false;    // it is aborted
    Ending ending_ = nullptr;  // how it shall end
    bool done_ = false;
};

// Peers of messages that are on a stream, and that nobody has waited for yet: the next wait is for them.
class Awaited {
public:
    void add(i64 peer) { peers_.push_back(peer); }
    void clear() { peers_.clear(); }
    bool empty() const { return peers_.empty(); }

    // The peer, if it is only one; else -1.
    i64 only() const {
        const bool one = !peers_.empty() && std::count(peers_.begin(), peers_.end(), peers_[0]) ==
                                                static_cast<i64>(peers_.size());
        return one ? peers_[0] : -1;
    }

    // Text for an error message: ", which awaits ranks 1, 3, 8 to 63"; empty without peers.
    std::string text() const {
        constexpr u64 LONGEST = 200, RUN = 4;
        std::vector<i64> ranks = peers_;
        std::sort(ranks.begin(), ranks.end());
        ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
        std::string found;
        for (u64 i = 0, n; i < ranks.size(); i += n) {
            for (n = 1; i + n < ranks.size() && ranks[i + n] == ranks[i] + static_cast<i64>(n);) ++n;
            found += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
            if (n >= RUN)
                found += " to " + std::to_string(ranks[i + n - 1]);
            else
                n = 1;
            if (found.size() > LONGEST && i + n < ranks.size())
                return ", which awaits ranks " + found + ", ...";
        }
        const char* const noun = ranks.size() == 1 ? ", which awaits rank " : ", which awaits ranks ";
        return ranks.empty() ? "" : noun + found;
    }

private:
    std::vector<i64> peers_;  // several times those of several messages
};

// Graphs that hold calls of a group. Each is destroyed by its owner, on any thread, or when the group ends.
class Graphs {
public:
    void add(CUgraphExec graph) {
        const std::lock_guard<std::mutex> guard(mutex_);
        held_.insert(graph);
    }

    // Destroys a graph. CUDA frees one that runs when it ends.
    void destroy(CUgraphExec graph) {
        const std::lock_guard<std::mutex> guard(mutex_);
        if (held_.erase(graph) != 0) api.cuGraphExecDestroy(graph);
    }

    void clear() {
        const std::lock_guard<std::mutex> guard(mutex_);
        for (CUgraphExec each : held_) api.cuGraphExecDestroy(each);
        held_.clear();
    }

private:
    std::mutex mutex_;
    std::set<CUgraphExec> held_;
};

struct Communicator {
    i64 rank = 0;
    i64 size = 1;
    Watchdog* watchdog = nullptr;  // null for one rank alone, and once the group is broken
    bool broken = false;
    bool in_graphs = false;  // calls of it were captured for graphs of others
    const std::shared_ptr<Graphs> graphs = std::make_shared<Graphs>();
    Awaited awaited;  // by the next wait, whoever waits
    CUcontext context = nullptr;
    CUevent ready = nullptr;  // on the call's stream: what is awaited has passed
    Staging staging;
    std::map<u64, u64> packed;  // by a call's signature: values of its largest own segment, the last time
};

inline void end(Communicator& group, Watchdog::Ending how) {
    constexpr i64 LONGEST = 10000000;  // microseconds
    group.graphs->clear();
    if (group.watchdog != nullptr) group.watchdog->finish(how, group.in_graphs ? 0 : LONGEST);
    group.watchdog = nullptr;
}

// Ends all that is under way, on this rank. The group can't be used again.
inline void abort(Communicator& group) {
    end(group, api.ncclCommAbort);
    group.broken = group.size > 1;
}

// Events, and pinned memory.
inline bool prepare(Communicator& group, ErrorText error) {
    api.cuCtxGetCurrent(&group.context);
    if (group.context == nullptr) return refuse(error, "no CUDA context is current in this thread");
    if (const CUresult result = api.cuEventCreate(&group.ready, CU_EVENT_DISABLE_TIMING))
        return refuse(error, "cuEventCreate failed: %s", name_of(result));
    if (const CUresult result = group.staging.prepare())
        return refuse(error, "cuMemHostAlloc failed: %s", name_of(result));
    return true;
}

// Waits for all ranks, up to `deadline` microseconds.
inline bool join(Communicator& group, const ncclUniqueId& id, i64 deadline, ErrorText error) {
    if (api.ncclSend == nullptr)
        return refuse(error, "NCCL is not bound: it is needed for %lld ranks", group.size);
    group.watchdog = Watchdog::start(group.context, id, group.size, group.rank);
    if (group.watchdog == nullptr) return refuse(error, "there can be no thread for NCCL");
    const ncclResult_t result = group.watchdog->wait_until_made(deadline);
    if (result == ncclInProgress)
        return refuse(error, "not all %lld ranks came together within %g s", group.size, deadline / 1e6);
    return result == ncclSuccess ||
           refuse(error, "ncclCommInitRankConfig failed: %s", api.ncclGetErrorString(result));
}

inline void close(Communicator* group) {
    api.cuCtxSetCurrent(group->context);
    end(*group, api.ncclCommDestroy);
    if (group->ready != nullptr) api.cuEventDestroy_v2(group->ready);
    delete group;
}

// Waits until the device has passed the event of `what`, as in "step 3 of" a call, which awaits messages of
// peers; or fails. The device passes the event also when NCCL has given up, so NCCL's error is asked for
// afterwards. If there is a `bell`, the device rings it before the event, and the driver is seldom asked.
inline void await(Call& call, Communicator& group, const std::string& what, const Awaited& awaited,
                  const u64* bell = nullptr) {
    Backoff patience(call.deadline);
    for (bool asks = true; ok(call); asks = bell == nullptr || patience.asks()) {
        const bool rung = !asks && __atomic_load_n(bell, __ATOMIC_ACQUIRE) == RUNG;
        if (!asks && !rung && patience.wait()) continue;
        const CUresult result = rung ? CUDA_SUCCESS : api.cuEventQuery(group.ready);
        ncclResult_t error = ncclSuccess;
        if (group.watchdog != nullptr) api.ncclCommGetAsyncError(group.watchdog->communicator(), &error);
        const bool lost = error != ncclSuccess;
        if (!lost && result == CUDA_SUCCESS) return;
        if (!lost && result == CUDA_ERROR_NOT_READY && patience.wait()) continue;
        const std::string text = what + " call " + std::to_string(call.number) + awaited.text();
        if (lost)
            fail(call, NCCL_FAILED, awaited.only(), "%s, failed: %s", text.c_str(),
                 api.ncclGetErrorString(error));
        else if (result != CUDA_ERROR_NOT_READY)
            check(call, result, "the stream", text.c_str());
        else
            fail(call, DEADLINE_PASSED, awaited.only(), "%s, did not end within the deadline of %g s",
                 text.c_str(), call.deadline / 1e6);
    }
}

extern "C" {

// Makes a name for a group, 128 bytes, which one rank makes and all others are told. Returns 1, or 0 with the
// reason in `error`.
ZENC_EXPORT i64 zenc_unique_id(u8* id, char* error, u64 size) {
    ncclUniqueId made;
    const ErrorText text = {error, size};
    if (api.ncclGetUniqueId == nullptr) return refuse(text, "NCCL is not bound");
    if (const ncclResult_t result = api.ncclGetUniqueId(&made))
        return refuse(text, "ncclGetUniqueId failed: %s", api.ncclGetErrorString(result));
    std::memcpy(id, made.internal, sizeof made.internal);
    return 1;
}

// Joins a group of `ranks`, with the device of the current context; all of them do so, and wait for each
// other up to `deadline` microseconds. One rank alone needs neither NCCL nor an id. Returns what a Call takes
// as `communicator`, or null with the reason in `error`.
ZENC_EXPORT void* zenc_open_communicator(const u8* id, i64 ranks, i64 rank, i64 deadline, char* error,
                                         u64 size) {
    const BesideCaptures beside;
    auto* const group = new Communicator;
    group->rank = rank;
    group->size = ranks;
    ncclUniqueId name = {};
    if (ranks > 1) std::memcpy(name.internal, id, sizeof name.internal);
    if (prepare(*group, {error, size}) && (ranks == 1 || join(*group, name, deadline, {error, size})))
        return group;
    abort(*group);
    close(group);
    return nullptr;
}

// Ends all that is under way, replays of graphs among it. The group can't be used again.
ZENC_EXPORT void zenc_abort_communicator(void* communicator) {
    abort(*static_cast<Communicator*>(communicator));
}

// Closes a communicator. No call may be under way, on the host or on its stream.
ZENC_EXPORT void zenc_close_communicator(void* communicator) {
    const BesideCaptures beside;
    close(static_cast<Communicator*>(communicator));
}
}

}  // namespace zenc
