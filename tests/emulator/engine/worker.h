// A thread of the OS that takes part in launches: it runs one block at a time, every thread of it on a fiber.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/errors.h"
#include "engine/fiber.h"
#include "engine/launch.h"
#include "engine/shared_memory.h"

namespace emulator {

constexpr unsigned MOST_THREADS = 1024;
constexpr unsigned WARP = 32;

enum class State : char { FRESH, READY, AT_BARRIER, IN_WARP, GONE };

struct Place {
    const char* file;
    int line;
};

// A lane's part in an operation of its warp.
struct Request {
    WarpOp op;
    unsigned mask;
    u64 value;
    int operand, width;
    Place place;
};

// A thread of the block.
struct Thread {
    Here here;
    State state;
    unsigned number;     // in the block
    Fiber* fiber;        // while it runs
    Request request;     // of its warp; `place` also of barriers
    u64 result;          // of its warp's operation
    unsigned contended;  // accesses since it last let others run
    // A fence orders atomic accesses before it, and those after it, for race detectors.
    bool fenced;
    unsigned seen_count;
    const volatile void* seen[8];
};

class Worker {
public:
    Worker();

    // Runs blocks until none is left.
    void work(Launch& launch);

    // Functions that threads call; `current()` is the one that runs.
    void barrier(Place place);
    u64 warp(const Request& request);
    void* shared(const void* tag, u64 bytes, Place place);
    void contended(const volatile void* address);
    void fence();
    void pause();
    [[noreturn]] void trap(Place place);
    // Whether this belongs to the block: shared memory, or what is known of its threads.
    bool has(const void* at) const {
        return shared_.has(at, 1) || (at >= threads_.get() && at < threads_.get() + MOST_THREADS);
    }
    [[noreturn]] void misaligned(const char* what, const volatile void* address, u64 bytes, Place place);

private:
    Thread& current() { return *current_; }
    void begin_block(u64 number);
    void run_block();
    bool run_pass();
    void resume(Thread& thread);
    void abandon();
    void report(const Thread& thread, Place place, const std::string& what);
    [[noreturn]] void drop();

    // Ends the launch for what `thread` did. Nothing may be left to destroy where this is called.
    template <class... Words>
    [[noreturn]] void fail(const Thread& thread, Place place, const char* format, Words... words) {
        report(thread, place, text(format, words...));
        drop();
    }

    void report_deadlock();

    static void fiber_main();
    Fiber& fiber_for(unsigned thread);
    Thread* finish();  // the current thread; returns the one that goes on with its fiber
    void suspend(State state);
    void yield();

    void open_barrier();
    void leave_warp(const Thread& thread);
    void check_present(const Thread& thread, const Request& request);

    Launch* launch_ = nullptr;
    u64 block_ = 0;  // of the grid
    unsigned count_ = 0, gone_ = 0, at_barrier_ = 0, fresh_ = 0;
    std::unique_ptr<Thread[]> threads_;
    std::vector<unsigned> order_;
    unsigned waiting_[MOST_THREADS / WARP], absent_[MOST_THREADS / WARP];  // lanes of each warp
    Thread* current_ = nullptr;
    Fiber main_;
    std::vector<std::unique_ptr<Fiber>> fibers_;
    std::vector<Fiber*> free_;
    SharedMemory shared_;
    const char* orders_ = nullptr;  // sync objects of the block, for race detectors: barrier, then one a warp
    u64 random_ = 0;                // what is drawn next; depends on seed and block alone
    bool shuffled_ = false;
};

}  // namespace emulator
