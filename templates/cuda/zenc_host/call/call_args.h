// The one argument block of a call sequence. zenc/targets/cuda has its twin as a ctypes.Structure.
#pragma once

#include "zenc/segment.h"

namespace zenc {

constexpr i64 MOST_MESSAGE = 512;

// How a call ended. Everything but DONE breaks the communicator for all later calls, unless no byte has
// moved.
enum Outcome : i64 {
    DONE = 0,
    CUDA_FAILED = 1,      // `message` names the call and the driver's error
    NCCL_FAILED = 2,      // the same of NCCL
    DEADLINE_PASSED = 3,  // the communicator was aborted
    DIFFERENT_CALLS = 4,  // a peer is in another call: `peer`, and what differs in `message`
    OUT_OF_MEMORY = 5,    // `allocate` returned 0
    BAD_UNIT = 6,         // a unit id out of range at position `detail`
    CORRUPT_SEGMENT = 7,  // what came from `peer` is no segment of the count that it promised
    UNUSABLE_GROUP = 8,   // an earlier call broke the communicator, or the sequence is for other ranks
    NOT_CAPTURABLE = 9,   // a graph captures the stream, and `report` is null; nothing has been done
};

struct PhaseCount {
    i64 bytes_sent, bytes_received, messages_sent, messages_received;      // controls included
    i64 formats_sent[LAST_FORMAT + 1], formats_received[LAST_FORMAT + 1];  // bytes of bodies by format
    i64 nanoseconds;
};

struct Call {
    // What to sum.
    u64 number;     // of the call in its group
    u64 signature;  // the same on ranks that make the same call: plan, shape, dtype, operation
    i64 units, width;
    i64 dtype;              // 0 f32, 1 f64, 2 f16, 3 bf16
    u64* tables;            // of a hashed mapping, on the device; else null
    double r1, r2;          // of a hashed mapping: cells of the memory for each id; else 0
    const i64* part_slots;  // [parts] in the caller's memory: the slots of each part; none by holders
    const i64* ids;         // [n] on the device, any order, duplicates; null for a dense tensor alone
    i64 n;
    const void* values;  // [n, width], or [units, width] of a dense tensor
    i64 divisor;         // each value is divided by it before it is summed
    void* dense_out;     // [units, width] for a dense result; null: the occupied units and their rows
    // With what.
    void* kernels;       // what zenc_load_kernels gave
    void* communicator;  // what zenc_open_communicator gave
    void* stream;        // CUstream on which the input is ready, and the result will be
    void* side;          // CUstream for what crosses to the host
    u64 (*allocate)(
        void* user,
        u64 bytes);  // device memory, aligned to 256, that lives until the caller drops it; 0: none left
    void* user;
    void* arena;      // device memory for all but the results, or null; `allocate` gives what it lacks
    u64 arena_bytes;  // of it; aligned as well
    i64 deadline;     // microseconds for any single wait
    // Capacity mode (docs/adr/0024-capacity-mode.md), where own_share > 0: of the slots of a part the
    // gradient of a rank occupies own_share at most, and a sum sum_share. Else the call is made again,
    // exactly.
    double own_share, sum_share;
    u64* report;  // [1 + 2 * parts] pinned: the call is captured, and what it finds comes here with each
                  // replay: 1 if it has to be made again, counts_in, counts_out. Null: it is not captured
    // What came of it.
    i64* ids_out;      // [count_out], ascending, from `allocate`
    void* values_out;  // [count_out, width], from `allocate`
    i64 count_out;
    u64 arena_wanted;      // bytes: an arena of so many would have sufficed
    i64* counts_in;        // [parts] in the caller's memory: occupied units of this rank's own gradient
    i64* counts_out;       // [parts]: of the sum
    i64 made_again;        // 1: there was not room for all in capacity mode
    PhaseCount phases[3];  // push, pull, announce
    i64 outcome;
    i64 peer;  // whom a failure concerns, or -1
    i64 detail;
    char message[MOST_MESSAGE];
};

}  // namespace zenc
