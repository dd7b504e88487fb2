// The argument block of a call, and what else the host's side of a GPU agrees on with Python. Made by
// `make tables` of zenc/wire/constants.py and zenc/wire/structs.py: change those.
#pragma once

#include "zenc/constants.h"

namespace zenc {

constexpr int OLDEST_DRIVER = 12000;  // major * 1000 + minor * 10
constexpr int OLDEST_NCCL = 22800;    // major * 10000 + minor * 100 + patch
constexpr u64 NCCL_ID_BYTES = 128;
constexpr u64 STAGING_BYTES = 262144;  // pinned memory that a communicator takes at a time

constexpr i64 DTYPES = 4;
constexpr const char* DTYPE_NAMES[DTYPES] = {"f32", "f64", "f16", "bf16"};
constexpr i64 DTYPE_BYTES[DTYPES] = {4, 8, 2, 2};

// How a call ended. Everything but DONE breaks the communicator for all later calls, unless no byte has
// moved.
enum Outcome : i64 {
    DONE = 0,             // the result is there
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

// Device memory, aligned to 256, that lives until the caller drops it; 0: none left.
using Allocate = u64 (*)(void* user, u64 bytes);

struct PhaseCount {
    i64 bytes_sent;  // control messages included, here and in the next three
    i64 bytes_received;
    i64 messages_sent;
    i64 messages_received;
    i64 formats_sent[20];  // bytes of bodies by format
    i64 formats_received[20];
    i64 nanoseconds;
};

struct Call {
    // What to sum.
    u64 number;     // of the call in its group
    u64 signature;  // the same on ranks that make the same call: plan, shape, dtype, operation
    i64 units;
    i64 width;
    i64 dtype;    // its place in DTYPE_NAMES
    u64 seed;     // of a permutation
    i64 block;    // units that a permutation moves together; 0 if there is none
    u64* tables;  // of a hashed mapping, on the device; else null
    double r1;    // of a hashed mapping, like r2: cells of the memory for each id; else 0
    double r2;
    const i64* part_slots;  // [parts] in the caller's memory: slots of each part; none by holders
    const i64* ids;         // [n] on the device, any order, duplicates; null for a dense tensor
    i64 n;
    const void* values;  // [n, width], or [units, width] of a dense tensor
    i64 divisor;         // each value is divided by it before it is summed
    void* dense_out;     // [units, width] for a dense result; null: the occupied units and their rows
    // With what.
    void* kernels;        // what zenc_load_kernels gave
    void* communicator;   // what zenc_open_communicator gave
    const void* program;  // what zenc_load_program gave; null for compiled sequences
    void* stream;         // CUstream on which the input is ready, and the result will be
    void* side;           // CUstream for what crosses to the host
    Allocate allocate;
    void* user;
    void* arena;      // device memory for all but results, or null; `allocate` gives what it lacks
    u64 arena_bytes;  // of it; aligned as well
    i64 deadline;     // microseconds for any single wait
    // Capacity mode (docs/adr/0024-capacity-mode.md), where own_share > 0: of the slots of a part the
    // gradient of a rank occupies own_share at most, and a sum sum_share. Else the call is made again,
    // exactly. With a report the call is captured, and what it finds comes there with each replay: 1 if it
    // has to be made again, counts_in, counts_out.
    double own_share;
    double sum_share;
    u64* report;  // [1 + 2 * parts] pinned; null: the call is not captured
    // What came of it.
    i64* ids_out;      // [count_out], ascending, from `allocate`
    void* values_out;  // [count_out, width], from `allocate`
    i64 count_out;
    u64 arena_wanted;      // bytes: an arena of so many would have sufficed
    i64* counts_in;        // [parts] in the caller's memory: occupied units of this rank's gradient
    i64* counts_out;       // [parts]: of the sum
    i64 made_again;        // 1: there was not room for all in capacity mode
    PhaseCount phases[3];  // push, pull, announce
    i64 outcome;           // an Outcome
    i64 peer;              // whom a failure concerns, or -1
    i64 detail;
    char message[512];
};

// Rank programs as tables: table.h, whose first words are a TableHeader, and program.h.
constexpr i64 WHOLE = -1;  // the part of all units
constexpr i64 FULL = 1048576;
constexpr i64 NO_CUT = -1;
enum class Operation : i64 {
    PACK,
    BEGIN,
    SEND,
    RECEIVE,
    EXCHANGE,
    MERGE,
    FILL,
    SPARSIFY,
    AGREE,
    SPLIT,
    FINISH
};
enum Kind : i64 { PUSH, PULL, ANNOUNCE };
enum Carries : i64 { SEGMENTS, SETS, ROWS };
enum Announced : i64 { UNANNOUNCED, ANNOUNCED };
enum InResult : i64 { NOT_IN_RESULT, IN_RESULT, SUM_FOR_RESULT };

struct TableHeader {
    i64 size, rank, parts, segments, cuts, pieces;
};

struct SegmentSpec {
    i64 part;       // or WHOLE
    i64 asked;      // FORMAT_...: in which it is sent first; of one that is not sent FORMAT_DENSE
    i64 ranks;      // that contributed to it
    i64 spread;     // slots that a unit may make it have, those filled up included; or FULL: it has all
    i64 in_result;  // an InResult
    i64 cut;        // of rows the cut whose slots they have; else NO_CUT
};

struct SlotCut {
    i64 part;
    i64 rank;    // who holds its slots; -1: those of the cuts pieces[first] and on
    i64 marked;  // 1: it is needed as a bitmap
    i64 first;
    i64 number;  // of pieces
};

}  // namespace zenc
