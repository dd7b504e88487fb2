// Meetings of a block's threads: __syncthreads, and what lanes of a warp do together.
#include "engine/sanitizers.h"
#include "engine/worker.h"

namespace emulator {

namespace {

// Calls f(lane) for each lane of a mask.
template <class F>
void for_lanes(unsigned mask, F f) {
    for (; mask; mask &= mask - 1) f(static_cast<unsigned>(__builtin_ctz(mask)));
}

// Lanes of `mask` whose value makes `test` true.
template <class F>
unsigned lanes_where(unsigned mask, F test) {
    unsigned found = 0;
    for_lanes(mask, [&](unsigned lane) { found |= test(lane) ? 1U << lane : 0U; });
    return found;
}

template <class F>
u64 folded(const Thread* lanes, unsigned mask, F combine) {
    u64 result = lanes[__builtin_ctz(mask)].request.value;
    for_lanes(mask & (mask - 1), [&](unsigned lane) { result = combine(result, lanes[lane].request.value); });
    return result;
}

// The lane that `lane` reads in a shuffle: its own where the other is outside of its group of `width` lanes.
unsigned source(const Request& request, unsigned lane) {
    const unsigned width = static_cast<unsigned>(request.width),
                   operand = static_cast<unsigned>(request.operand);
    const unsigned first = lane & ~(width - 1);
    switch (request.op) {
        case WarpOp::SHUFFLE:
            return first + (operand & (width - 1));
        case WarpOp::UP:
            return lane >= first + operand ? lane - operand : lane;
        case WarpOp::DOWN:
            return lane + operand < first + width ? lane + operand : lane;
        default:
            return (lane ^ operand) < first + width ? lane ^ operand : lane;
    }
}

// The result that is the same for all lanes.
u64 common(WarpOp op, const Thread* lanes, unsigned mask) {
    const unsigned set = lanes_where(mask, [=](unsigned lane) { return lanes[lane].request.value != 0; });
    switch (op) {
        case WarpOp::BALLOT:
            return set;
        case WarpOp::ANY:
            return set != 0;
        case WarpOp::ALL:
            return set == mask;
        case WarpOp::SUM:
            return folded(lanes, mask, [](u64 a, u64 b) { return a + b; });
        case WarpOp::MIN:
            return folded(lanes, mask, [](u64 a, u64 b) { return a < b ? a : b; });
        case WarpOp::MAX:
            return folded(lanes, mask, [](u64 a, u64 b) { return a < b ? b : a; });
        case WarpOp::AND:
            return folded(lanes, mask, [](u64 a, u64 b) { return a & b; });
        case WarpOp::OR:
            return folded(lanes, mask, [](u64 a, u64 b) { return a | b; });
        case WarpOp::EXCLUSIVE_OR:
            return folded(lanes, mask, [](u64 a, u64 b) { return a ^ b; });
        default:
            return 0;
    }
}

bool is_shuffle(WarpOp op) {
    return op >= WarpOp::SHUFFLE && op <= WarpOp::XOR;
}

// Whether all lanes of the mask wait for this very operation.
bool is_complete(const Request& request, const Thread* lanes, unsigned waiting) {
    if ((waiting & request.mask) != request.mask) return false;
    const unsigned agreed = lanes_where(request.mask, [&](unsigned lane) {
        return lanes[lane].request.mask == request.mask && lanes[lane].request.op == request.op;
    });
    return agreed == request.mask;
}

void give_results(WarpOp op, Thread* lanes, unsigned mask) {
    if (op == WarpOp::SYNC) return;
    const u64 same = is_shuffle(op) ? 0 : common(op, lanes, mask);
    for_lanes(mask, [&](unsigned lane) {
        Thread& thread = lanes[lane];
        if (op == WarpOp::MATCH)
            thread.result = lanes_where(
                mask, [&](unsigned other) { return lanes[other].request.value == thread.request.value; });
        else if (is_shuffle(op))
            thread.result = lanes[source(thread.request, lane)].request.value;
        else
            thread.result = same;
    });
}

}  // namespace

void Worker::barrier(Place place) {
    Thread& thread = current();
    thread.request.place = place;
    release(orders_);
    at_barrier_++;
    if (at_barrier_ == count_ - gone_) {
        thread.state = State::AT_BARRIER;
        open_barrier();
    } else {
        suspend(State::AT_BARRIER);
    }
    acquire(orders_);
}

void Worker::open_barrier() {
    const Thread* first = nullptr;
    for (unsigned i = 0; i < count_; i++) {
        Thread& thread = threads_[i];
        if (thread.state != State::AT_BARRIER) continue;
        if (!first) first = &thread;
        const Place here = thread.request.place, there = first->request.place;
        if (here.line != there.line || here.file != there.file)
            fail(thread, here, "divergent __syncthreads: thread %u is in that of line %d", first->number,
                 there.line);
        if (gone_)
            fail(thread, here, "%u of %u threads have exited before this __syncthreads", gone_, count_);
        thread.state = State::READY;
    }
    at_barrier_ = 0;
}

void Worker::check_present(const Thread& thread, const Request& request) {
    const unsigned absent = request.mask & absent_[thread.number / WARP];
    if (absent)
        fail(thread, request.place, "mask %08x names lanes %08x, which have exited or never were",
             request.mask, absent);
}

// The thread exits; lanes that wait for it would do so for ever.
void Worker::leave_warp(const Thread& thread) {
    const unsigned number = thread.number / WARP;
    absent_[number] |= 1U << thread.number % WARP;
    for_lanes(waiting_[number], [&](unsigned lane) {
        const Thread& other = threads_[number * WARP + lane];
        check_present(other, other.request);
    });
}

u64 Worker::warp(const Request& request) {
    Thread& thread = current();
    const unsigned number = thread.number / WARP, lane = thread.number % WARP, mask = request.mask;
    Thread* lanes = &threads_[number * WARP];
    const char* order = orders_ + 8 * (1 + number);
    if (!(mask >> lane & 1)) fail(thread, request.place, "lane %u is not in its own mask %08x", lane, mask);
    check_present(thread, request);
    if (is_shuffle(request.op) && !(mask >> source(request, lane) & 1))
        fail(thread, request.place, "lane %u reads lane %u outside of mask %08x", lane, source(request, lane),
             mask);
    thread.request = request;
    waiting_[number] |= 1U << lane;
    if (request.op == WarpOp::SYNC) release(order);
    if (is_complete(request, lanes, waiting_[number])) {
        give_results(request.op, lanes, mask);
        for_lanes(mask, [&](unsigned other) { lanes[other].state = State::READY; });
        waiting_[number] &= ~mask;
    } else {
        suspend(State::IN_WARP);
    }
    if (request.op == WarpOp::SYNC) acquire(order);
    return thread.result;
}

}  // namespace emulator
