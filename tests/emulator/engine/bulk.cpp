// Bulk copies of a block: what a GPU would refuse, and when they are delivered.
#include <algorithm>

#include "engine/settings.h"
#include "engine/worker.h"

namespace emulator {

namespace {

constexpr u64 ALIGNED = 16;  // addresses and sizes of bulk copies

}  // namespace

BulkBarrier& Worker::bulk_barrier(const u64* at, Place place) {
    for (BulkBarrier& barrier : bulk_barriers_)
        if (barrier.at == at) return barrier;
    fail(current(), place, "a barrier of bulk copies that was not begun");
}

void Worker::check_bulk(const BulkCopy& copy, const void* shared, Place place) {
    for (const void* address : {static_cast<const void*>(copy.to), copy.from})
        if (reinterpret_cast<u64>(address) % ALIGNED != 0) misaligned("a bulk copy", address, ALIGNED, place);
    if (copy.bytes % ALIGNED != 0 || copy.bytes == 0)
        fail(current(), place, "a bulk copy of %llu bytes: sizes are multiples of 16", copy.bytes);
    if (!shared_.has(shared, copy.bytes))
        fail(current(), place, "a bulk copy of %llu bytes reaches out of the block's shared arrays",
             copy.bytes);
}

// Whether a copy that may be delivered from now on is so at once.
bool Worker::is_prompt() {
    return shuffled_ && draw(random_) % 2 == 0;
}

void Worker::deliver(BulkCopy& copy) {
    if (copy.bytes != 0) copy.copy(copy.to, copy.from, copy.bytes);
    copy.bytes = 0;
}

void Worker::bulk_begin(u64* at, Place place) {
    if (!shared_.has(at, sizeof *at)) fail(current(), place, "a barrier that is not in shared memory");
    bulk_barriers_.push_back({at, false, 0, {}, {}});
}

void Worker::bulk_load(BulkCopy copy, u64* at, Place place) {
    check_bulk(copy, copy.to, place);
    BulkBarrier& barrier = bulk_barrier(at, place);
    if (barrier.waits) fail(current(), place, "a second bulk copy for a barrier that was not waited for");
    barrier.copy = copy;
    barrier.place = place;
    barrier.waits = true;
    if (is_prompt()) deliver(barrier.copy);
}

void Worker::bulk_wait(u64* at, unsigned parity, Place place) {
    BulkBarrier& barrier = bulk_barrier(at, place);
    if (barrier.passed % 2 != parity) return;  // the copy before is there
    if (!barrier.waits) fail(current(), place, "waits for a bulk copy that nobody has begun");
    deliver(barrier.copy);
    barrier.waits = false;
    barrier.passed++;
}

void Worker::bulk_store(BulkCopy copy, Place place) {
    check_bulk(copy, copy.from, place);
    bulk_stores_.push_back({current().number, copy, place});
    if (is_prompt()) deliver(bulk_stores_.back().copy);
}

void Worker::bulk_wait_for_stores(unsigned left) {
    const unsigned thread = current().number;
    auto mine = std::count_if(bulk_stores_.begin(), bulk_stores_.end(),
                              [=](const BulkStore& store) { return store.thread == thread; });
    for (auto store = bulk_stores_.begin(); store != bulk_stores_.end() && mine > left;) {
        if (store->thread != thread) {
            ++store;
            continue;
        }
        deliver(store->copy);
        store = bulk_stores_.erase(store);
        --mine;
    }
}

// At the end of a thread, or of a block.
void Worker::check_stores(const Thread& thread) {
    for (const BulkStore& store : bulk_stores_)
        if (store.thread == thread.number) fail(thread, store.place, "ends before this bulk store");
}

void Worker::check_loads() {
    for (const BulkBarrier& barrier : bulk_barriers_)
        if (barrier.waits)
            fail(current(), barrier.place, "the block ends before a bulk copy that it has begun");
}

}  // namespace emulator
