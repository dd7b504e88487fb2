// Messages among processes of one host: memory files, rings between two processes, and waits. One unit for
// all schemes.
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>

#include "zenc/config.h"
#include "zenc/constants.h"
#include "zenc/entry_points.h"

namespace {

using zenc::entry, zenc::i64, zenc::u32, zenc::u64, zenc::u8;

constexpr u32 LOANS = 1024;
constexpr u32 FREE = 0, LENT = 1, RETURNED = 2;
constexpr i64 CAME = 1, NOT_YET = 0, CLOSED = -1, DEAD = -2;

// The place of a message in the memory of its sender, which lends it until the receiver returns it.
struct Slot {
    u32 tag, loan;
    u64 offset, bytes, nothing;
};

// A ring of slots, from one sender to one receiver. It lies in the file of the receiver, and begins as zeros.
// A loan is free again some time after its message was read, and there are as many slots as loans: so no slot
// is written to before it was read.
struct Ring {
    std::atomic<u32> published;  // messages, modulo 2^32: what the receiver waits on
    std::atomic<u32> sleepers;   // threads of the receiver
    std::atomic<u32> closed;     // by the sender
    u32 nothing[13];
    std::atomic<u32> loans[LOANS];
    Slot slots[LOANS];
};

static_assert(sizeof(Slot) == 32 && sizeof(Ring) == 64 + 36 * LOANS, "no gaps");
static_assert(std::atomic<u32>::is_always_lock_free && sizeof(std::atomic<u32>) == 4, "what processes share");

Slot& slot_of(Ring* ring, i64 number) {
    return ring->slots[static_cast<u64>(number) % LOANS];
}

long futex(std::atomic<u32>& word, int what, u32 value, const timespec* timeout) {
    return syscall(SYS_futex, reinterpret_cast<u32*>(&word), what, value, timeout, nullptr, 0);
}

void wake(Ring* ring) {
    if (ring->sleepers.load()) futex(ring->published, FUTEX_WAKE, 0x7fffffff, nullptr);
}

bool has(Ring* ring, u32 read) {
    return ring->published.load(std::memory_order_acquire) != read;
}

i64 now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1'000'000'000LL + time.tv_nsec;
}

bool is_dead(i64 process) {
    pollfd of{static_cast<int>(process), POLLIN, 0};
    return poll(&of, 1, 0) > 0;
}

void sleep(Ring* ring, u32 read, i64 nanoseconds) {
    const timespec timeout{nanoseconds / 1'000'000'000, nanoseconds % 1'000'000'000};
    ring->sleepers.fetch_add(1);
    if (ring->published.load() == read) futex(ring->published, FUTEX_WAIT, read, &timeout);
    ring->sleepers.fetch_sub(1);
}

i64 ring_bytes() {
    return sizeof(Ring);
}

// The address of `bytes` of the file from `offset` on; -errno if there is no room for them. Not for core
// dumps.
i64 map_file(i64 file, i64 offset, i64 bytes, i64 writable) {
    const int access = writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void* const at =
        mmap(nullptr, static_cast<u64>(bytes), access, MAP_SHARED, static_cast<int>(file), offset);
    if (at == MAP_FAILED) return -errno;
    madvise(at, static_cast<u64>(bytes), MADV_DONTDUMP);
    return reinterpret_cast<i64>(at);
}

i64 unmap(u8* at, i64 bytes) {
    return munmap(at, static_cast<u64>(bytes));
}

// Pages of the file itself, of whole pages that nobody reads: zeros for all who map it.
i64 give_back(u8* at, i64 bytes) {
    return madvise(at, static_cast<u64>(bytes), MADV_REMOVE);
}

i64 most_loans() {
    return LOANS;
}

// Publishes message `number` of the ring, under a free `loan`.
i64 publish(Ring* ring, i64 number, i64 loan, i64 tag, i64 offset, i64 bytes) {
    Slot& slot = slot_of(ring, number);
    slot.tag = static_cast<u32>(tag);
    slot.loan = static_cast<u32>(loan);
    slot.offset = static_cast<u64>(offset);
    slot.bytes = static_cast<u64>(bytes);
    ring->loans[loan].store(LENT, std::memory_order_relaxed);
    ring->published.fetch_add(1);
    wake(ring);
    return 1;
}

// Waits for message `number` of the ring, `nanoseconds` at most, of which the first `spinning` awake;
// `process` is the sender's. Writes its tag, loan, offset and bytes.
i64 wait_message(Ring* ring, i64 number, i64 process, i64 spinning, i64 nanoseconds, i64* found) {
    const u32 read = static_cast<u32>(number);
    if (!has(ring, read) && nanoseconds > 0) {
        const i64 started = now();
        for (i64 passed = 0; passed < spinning && !has(ring, read); passed = now() - started) sched_yield();
        for (i64 left = nanoseconds; left > 0 && !has(ring, read); left = nanoseconds - (now() - started)) {
            if (ring->closed.load()) break;
            sleep(ring, read, left);
        }
    }
    if (!has(ring, read)) {
        const i64 why = ring->closed.load() ? CLOSED : is_dead(process) ? DEAD : NOT_YET;
        if (!has(ring, read)) return why;  // what it sent before it ended is good
    }
    const Slot& slot = slot_of(ring, number);
    found[0] = slot.tag;
    found[1] = slot.loan;
    found[2] = static_cast<i64>(slot.offset);
    found[3] = static_cast<i64>(slot.bytes);
    return CAME;
}

// The receiver needs what was lent no more. -1 for a loan that there is not.
i64 return_loan(Ring* ring, i64 loan) {
    if (loan < 0 || loan >= LOANS) return -1;
    ring->loans[loan].store(RETURNED, std::memory_order_release);
    return 0;
}

// Writes those of the first `n` loans that were returned, which are free then. Returns how many.
i64 take_returned(Ring* ring, i64 n, i64* loans) {
    i64 count = 0;
    for (i64 loan = 0; loan < n && loan < LOANS; ++loan) {
        if (ring->loans[loan].load(std::memory_order_acquire) != RETURNED) continue;
        ring->loans[loan].store(FREE, std::memory_order_relaxed);
        loans[count++] = loan;
    }
    return count;
}

// No more messages will come.
i64 close_ring(Ring* ring) {
    ring->closed.store(1);
    futex(ring->published, FUTEX_WAKE, 0x7fffffff, nullptr);
    return 0;
}

}  // namespace

const zenc::EntryPoint zenc_entry_points[] = {
    entry("ring_bytes", ring_bytes),
    entry("map", map_file),
    entry("unmap", unmap),
    entry("give_back", give_back),
    entry("most_loans", most_loans),
    entry("publish", publish),
    entry("await", wait_message),
    entry("return", return_loan),
    entry("returned", take_returned),
    entry("close", close_ring),
    {},
};
