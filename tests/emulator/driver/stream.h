// Streams and events: what is put on a stream runs later, in order, on an OS thread of its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "engine/launch.h"

namespace emulator {

struct Capture;

// Numbers of groups of NCCL that streams and events come behind: what is put on a stream next waits for them.
using Groups = std::set<u64>;

class Stream {
public:
    explicit Stream(int device = -1, bool waits_for_null = false);
    ~Stream();  // when all is done
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    void push(std::function<void()> work);
    bool idle();
    void wait();

    // Has what comes next wait for this group, or for what an event comes behind. Returns what it waited for
    // before.
    Groups put(u64 group);
    void put_behind(const Groups& groups);
    Groups groups();

    const int device;
    const bool waits_for_null;  // and that one for it

private:
    struct Item {
        std::function<void()> work;
        char pushed;  // order for race detectors: what was before push() is before the work
    };
    void serve();
    void run(Item& item);

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<Item*> items_;
    bool busy_ = false, stopping_ = false;
    Groups groups_;
    u64 delays_;
    char done_ = 0;  // the same of all work and wait()
    std::thread thread_;
};

// While it lives this thread waits for groups of NCCL, and posts none.
class HostWait {
public:
    explicit HostWait(const Groups& groups);
    ~HostWait();
    HostWait(const HostWait&) = delete;
    HostWait& operator=(const HostWait&) = delete;

private:
    const std::set<u64> tickets_;
};

class Event {
public:
    // The event is complete when all work on the stream now is done.
    void record(Stream* stream);
    bool complete();
    void wait();

    // Nothing that is put on the stream later runs before it is complete.
    void hold(Stream* stream);

    Groups groups();  // that it comes behind

    bool recorded() { return state_->newest() > 0; }

    // Whether nobody has asked since it was recorded.
    bool asked_first() { return asked_.exchange(state_->newest()) != state_->newest(); }

    // Time between two complete events.
    float milliseconds_since(const Event& start) const;

    // The node before the record, if that was in a capture.
    struct {
        std::shared_ptr<Capture> capture;
        std::vector<size_t> nodes;
    } captured;

private:
    // Outlives the event while a stream has to do with it.
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        u64 recorded = 0, finished = 0;
        std::chrono::steady_clock::time_point at;  // when the newest of the finished was
        char order = 0;

        u64 newest();
        void wait_for(u64 record);
        void finish(u64 record);
    };
    std::atomic<u64> asked_{0};
    Groups groups_;
    std::shared_ptr<State> state_ = std::make_shared<State>();
};

// Puts work on a stream; the null stream runs it now.
void push(Stream* stream, std::function<void()> work);

}  // namespace emulator
