// Constants and layouts on which Python, headers and all ranks agree. Made by `make tables` of
// zenc/wire/constants.py and zenc/wire/structs.py: change those.
#pragma once

#include "zenc/config.h"

// Changes whenever the bytes on the wire or an entry point of the kernels change.
#define ZENC_ABI_VERSION 12

namespace zenc {

// Messages and their bodies: formats.h.
constexpr u64 CONTROL_MAGIC = 0x3130436d6e657aULL;
constexpr i64 FORMAT_DENSE = 0;
constexpr i64 FORMAT_COO = 1;
constexpr i64 FORMAT_BITMAP = 2;
constexpr i64 FORMAT_ELIAS_FANO = 3;
constexpr i64 FORMAT_BLOCK = 4;
constexpr i64 LAST_FORMAT = 19;
constexpr i64 FORMAT_AUTO = LAST_FORMAT + 1;  // never on the wire: the smallest for each segment

// What a kernel returns instead of a count, if it can't do its work. Of id number i, -1 - i is said.
constexpr i64 UNKNOWN_FORMAT = -1;
constexpr i64 WRONG_COUNT = -2;
constexpr i64 NOT_ASCENDING = -3;
constexpr i64 OUT_OF_RANGE = -4;
constexpr i64 STRAY_BITS = -5;
constexpr i64 NOT_MARKED = -6;
constexpr i64 NO_MEMORY = -7;
constexpr i64 NO_MEMORY_FOR_IDS = -4611686018427387904;

// Larger tensors are not hashed: a unit has 32 bits in the tables, and unit + 1 has them in the memory.
constexpr u64 MOST_HASHED_UNITS = 0xffffffffULL;

// The step of SplitMix64, 2^64 / golden ratio, and the products of its finaliser: mix.h.
constexpr u64 GOLDEN = 0x9e3779b97f4a7c15ULL;
constexpr u64 MIX_FIRST = 0xbf58476d1ce4e5b9ULL;
constexpr u64 MIX_SECOND = 0x94d049bb133111ebULL;

// The rounds of a permutation, and the products of each draw: permutation.h.
constexpr int PERMUTATION_ROUNDS = 3;
constexpr u32 DRAW_FIRST = 0x7feb352dU;
constexpr u32 DRAW_SECOND = 0x846ca68bU;

// The units of a block of a permutation, and how many blocks a part has if they are as large as they can be.
constexpr u64 LEAST_BLOCK = 8;
constexpr u64 MOST_BLOCK = 64;
constexpr u64 BLOCKS_OF_PART = 10000;

// What a message received counts beside one sent, and a message beside a unit owned; and how many units have
// their owners chosen by the same loads: loads.h.
constexpr i64 RECEIVED_WEIGHT = 8;
constexpr i64 MESSAGE_WEIGHT = 16;
constexpr u64 CHOSEN_TOGETHER = 32;

// Threads of every block of every kernel of a GPU, and what they work on at a time: ranks.h, work.h and
// launch.h.
constexpr u32 THREADS = 256;
constexpr u64 RANKED_WORDS = 8;
constexpr u64 RANK_BITS = 37;
constexpr u64 SCAN_TILE = 2048;
constexpr u64 SORT_TILE = 4096;
constexpr u64 DIGIT_BITS = 8;
constexpr u64 MOST_INPUTS = 64;
constexpr u64 SET_WORDS = 2048;
constexpr u64 TABLE_WORDS = 433;

struct MessageHeader {
    u8 magic[4];
    u16 version;
    u16 nothing;
    u32 segments;
    u32 sender;
    u64 bytes;  // of the whole message
    u64 call;
    u64 signature;
    u64 units;
};

struct SegmentHeader {
    u32 part;
    u32 origin_and_format;  // origin << 8 | format
    u64 count;
};

// The headers of a message that carries one segment.
constexpr u64 FRAME_BYTES = sizeof(MessageHeader) + sizeof(SegmentHeader);
static_assert(FRAME_BYTES == 64, "headers have no gaps");

// One part's occupied slots and their values. Pointers are addresses of the device; those that a kernel has
// no use for are null. Where the number of slots is only known on the device, `count` is the room that there
// is for them (docs/adr/0024-capacity-mode.md).
struct Segment {
    u64* bitmap;   // [words_of(slots)]: occupied local slots; bits beyond `slots` are 0
    u64* ranks;    // [ranks_of(slots)]: of the bitmap, from any number on, or of elias_fano's high words
    u8* index;     // the index part of its body, aligned to 8
    void* values;  // [count, width]: ascending slots, aligned to 8
    u64 slots;     // of the part
    u64 count;     // occupied slots
    i64 format;    // FORMAT_...: how `index` is written
    u64 part;
    u64* actual;  // null; or the number of occupied slots, ahead of the index
};

}  // namespace zenc
