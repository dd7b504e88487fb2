// Watchdog of an NCCL communicator: a thread that makes it, aborts it when a call blocks past its deadline,
// and ends it.
#pragma once

#include <pthread.h>
#include <sched.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include "zenc_host/driver/api.h"

namespace zenc {

inline i64 nanoseconds_now() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

// Asks again and again: at once for some time, since most waits are short, then with pauses.
class Backoff {
public:
    explicit Backoff(i64 microseconds) : start_(nanoseconds_now()), end_(start_ + microseconds * 1000) {}

    // Gives way to others. False when the deadline has passed.
    bool wait() {
        const i64 now = nanoseconds_now();
        if (now >= end_) return false;
        if (now - start_ < BUSY) {
            sched_yield();
        } else {
            const timespec pause = {0, PAUSE};
            nanosleep(&pause, nullptr);
        }
        return true;
    }

private:
    static constexpr i64 BUSY = 2000000;  // nanoseconds
    static constexpr i64 PAUSE = 50000;

    const i64 start_;
    const i64 end_;
};

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

    // From here on what the caller does may block, for `deadline` microseconds.
    void arm(i64 deadline) {
        const std::lock_guard lock(mutex_);
        end_ = nanoseconds_now() + 1000 * deadline;
    }

    // Whether it has not been too late: else the communicator is aborted.
    bool disarm() {
        const std::lock_guard lock(mutex_);
        end_ = NEVER;
        return !given_up_;
    }

    // Ends the communicator, and waits for that up to `patience` microseconds; it goes on without that. The
    // watchdog is not the caller's any more.
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

}  // namespace zenc
