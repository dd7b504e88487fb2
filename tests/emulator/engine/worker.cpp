#include "engine/worker.h"

#include <sched.h>

#include <algorithm>
#include <utility>

#include "engine/sanitizers.h"
#include "engine/settings.h"

extern "C" {
__thread const emulator::Here* emulator_here __attribute__((tls_model("initial-exec"))) = nullptr;
}

namespace emulator {

namespace {

thread_local Worker* worker = nullptr;

constexpr unsigned PATIENCE = 1000;  // accesses of other threads' memory before one lets them run

}  // namespace

Worker::Worker() : threads_(new Thread[MOST_THREADS]) {}

void Worker::work(Launch& launch) {
    launch_ = &launch;
    shuffled_ = launch.seed > 0;
    worker = this;
    count_ = launch.threads.x * launch.threads.y * launch.threads.z;
    order_.resize(count_);
    shared_.begin_launch();
    while (!launch.failed) {
        const u64 block = launch.next.fetch_add(1, std::memory_order_relaxed);
        if (block >= launch.total()) break;
        begin_block(launch.block(block));
        run_block();
    }
    emulator_here = nullptr;
    worker = nullptr;
}

void Worker::begin_block(u64 number) {
    const dim3 grid = launch_->blocks, size = launch_->threads;
    const uint3 block = {static_cast<unsigned>(number % grid.x),
                         static_cast<unsigned>(number / grid.x % grid.y),
                         static_cast<unsigned>(number / grid.x / grid.y)};
    block_ = number;
    random_ = launch_->seed;
    random_ = draw(random_) + number;
    gone_ = at_barrier_ = fresh_ = 0;
    for (unsigned i = 0; i < count_; i++) {
        const uint3 thread = {i % size.x, i / size.x % size.y, i / size.x / size.y};
        threads_[i] = {};
        threads_[i].here = {thread, block, size, grid};
        threads_[i].number = order_[i] = i;
    }
    for (unsigned w = 0; w < MOST_THREADS / WARP; w++) {
        const unsigned lanes = std::min(WARP, count_ - std::min(count_, w * WARP));
        waiting_[w] = 0;
        absent_[w] = lanes == WARP ? 0 : ~0U << lanes;
    }
    shared_.begin_block();
    if (thread_sanitizer()) orders_ = static_cast<const char*>(shared_.unused(8 * (1 + MOST_THREADS / WARP)));
}

void Worker::run_block() {
    while (gone_ < count_) {
        if (!run_pass()) report_deadlock();
        if (launch_->failed) return abandon();
    }
}

// Lets every thread that can run do so once; false if none can.
bool Worker::run_pass() {
    bool ran = false;
    if (shuffled_)
        for (unsigned i = count_; i > 1; i--) std::swap(order_[i - 1], order_[draw(random_) % i]);
    for (unsigned i = 0; i < count_ && !launch_->failed; i++) {
        Thread& thread = threads_[order_[i]];
        if (thread.state != State::FRESH && thread.state != State::READY) continue;
        ran = true;
        resume(thread);
    }
    return ran;
}

void Worker::resume(Thread& thread) {
    if (thread.state == State::FRESH) {
        thread.fiber = &fiber_for(thread.number);
        fresh_ = thread.number + 1;
    }
    current_ = &thread;
    emulator_here = &thread.here;
    Fiber::change(main_, *thread.fiber);
}

// Race detectors take a fiber for one thread: equal numbers of successive blocks must not share theirs.
Fiber& Worker::fiber_for(unsigned thread) {
    if (thread_sanitizer()) {
        while (fibers_.size() < count_) fibers_.push_back(std::make_unique<Fiber>(fiber_main));
        return *fibers_[(thread + block_) % count_];
    }
    if (free_.empty()) {
        fibers_.push_back(std::make_unique<Fiber>(fiber_main));
        return *fibers_.back();
    }
    Fiber& fiber = *free_.back();
    free_.pop_back();
    return fiber;
}

void Worker::fiber_main() {
    Fiber::arrived_from(worker->main_);
    for (;;) {
        const Launch& launch = *worker->launch_;
        acquire(&launch.started);
        launch.kernel.call(launch.words);
        release(&launch.ended);
        if (worker->finish()) continue;
        Fiber& fiber = *std::exchange(worker->current_->fiber, nullptr);
        if (!thread_sanitizer()) worker->free_.push_back(&fiber);
        Fiber::change(fiber, worker->main_);
    }
}

Thread* Worker::finish() {
    Thread& thread = current();
    thread.state = State::GONE;
    gone_++;
    leave_warp(thread);
    if (at_barrier_ && at_barrier_ == count_ - gone_) open_barrier();
    if (shuffled_ || thread_sanitizer() || fresh_ == count_) return nullptr;
    Thread& next = threads_[fresh_++];
    next.fiber = std::exchange(thread.fiber, nullptr);
    next.state = State::READY;
    current_ = &next;
    emulator_here = &next.here;
    return &next;
}

void Worker::suspend(State state) {
    Thread& thread = current();
    thread.state = state;
    thread.contended = 0;
    Fiber::change(*thread.fiber, main_);
}

void Worker::yield() {
    if (std::chrono::steady_clock::now() > launch_->deadline)
        fail(current(), {nullptr, 0}, "still spins after %.0f s", settings().seconds);
    suspend(State::READY);
}

void Worker::pause() {
    sched_yield();
    yield();
}

void Worker::contended(const volatile void* address) {
    Thread& thread = current();
    if (thread_sanitizer()) {
        if (thread.fenced) release(address);
        thread.seen[thread.seen_count++ % std::size(thread.seen)] = address;
    }
    const bool drawn = shuffled_ && draw(random_) % 16 == 0;
    if (++thread.contended >= PATIENCE || drawn) yield();
}

void Worker::fence() {
    Thread& thread = current();
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    const unsigned count = std::min<unsigned>(thread.seen_count, std::size(thread.seen));
    for (unsigned i = 0; i < count; i++) acquire(thread.seen[i]);
    thread.fenced = true;
    if (shuffled_ && draw(random_) % 4 == 0) yield();
}

void Worker::trap(Place place) {
    fail(current(), place, "__trap");
}

void Worker::misaligned(const char* what, const volatile void* address, u64 bytes, Place place) {
    const u64 at = reinterpret_cast<u64>(address);
    fail(current(), place, "misaligned: %s of %llu bytes at address %#llx, %llu behind a multiple of %llu",
         what, bytes, at, at % bytes, bytes);
}

void* Worker::shared(const void* tag, u64 bytes, Place place) {
    void* memory = shared_.array(tag, bytes);
    if (!memory) fail(current(), place, "the block's shared arrays exceed %zu bytes", MOST_SHARED);
    return memory;
}

// The running thread is never resumed.
void Worker::drop() {
    Fiber::change(*current().fiber, main_);
    __builtin_unreachable();
}

void Worker::report(const Thread& thread, Place place, const std::string& what) {
    const uint3 block = thread.here.block;
    launch_->failed = true;
    std::string message =
        text("%s: block (%u, %u), thread %u: ", launch_->kernel.name, block.x, block.y, thread.number);
    message += what;
    if (place.file) message += text(", at %s:%d", place.file, place.line);
    keep_error(message);
}

void Worker::report_deadlock() {
    for (unsigned i = 0; i < count_; i++) {
        const Thread& thread = threads_[i];
        if (thread.state == State::AT_BARRIER)
            return report(thread, thread.request.place, "deadlock: waits in __syncthreads, others elsewhere");
        if (thread.state == State::IN_WARP)
            return report(
                thread, thread.request.place,
                text("deadlock: lane %u waits for the others of mask %08x", i % WARP, thread.request.mask));
    }
}

// Drops the threads of a failed launch where they stand.
void Worker::abandon() {
    for (const auto& fiber : fibers_) fiber->restart();
    free_.clear();
    for (const auto& fiber : fibers_) free_.push_back(fiber.get());
}

}  // namespace emulator

using emulator::u64;
using emulator::worker;

extern "C" {
void emulator_barrier(const char* file, int line) {
    worker->barrier({file, line});
}
u64 emulator_warp(emulator::WarpOp op, unsigned mask, u64 value, int operand, int width, const char* file,
                  int line) {
    return worker->warp({op, mask, value, operand, width, {file, line}});
}
// Whether this is no memory of the GPU, but belongs to the block that runs on this OS thread.
bool emulator_is_of_block(const void* at) {
    return emulator::worker != nullptr && emulator::worker->has(at);
}

void* emulator_shared(const void* tag, u64 bytes, const char* file, int line) {
    return worker->shared(tag, bytes, {file, line});
}
void emulator_contended(const volatile void* address) {
    if (worker) worker->contended(address);  // else it is the host's
}
void emulator_fence() {
    worker->fence();
}
void emulator_pause() {
    worker->pause();
}
void emulator_trap(const char* file, int line) {
    worker->trap({file, line});
}
void emulator_misaligned(const char* what, const volatile void* address, u64 bytes, const char* file,
                         int line) {
    worker->misaligned(what, address, bytes, {file, line});
}
}
