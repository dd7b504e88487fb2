// A stream, and everything that is put on it. Nothing here waits for the device, but who asks for memory
// while messages are under way. The last launch is held back until something else is asked for: what its last
// block can do as well becomes its epilogue.
//
// A call that has failed does nothing more: callers need not look at results, but at ok() before they use
// what an allocation gave.
#pragma once

#include <cstdlib>

#include "zenc/geometry.h"
#include "zenc/launch.h"
#include "zenc/ranges.h"
#include "zenc_host/communicator.h"
#include "zenc_host/kernels.h"

namespace zenc {

constexpr u64 MOST_BLOCKS = 1024;  // of one row of a grid: all that a GPU runs at once, about; kernels stride
constexpr u64 ALIGNMENT = 256;
constexpr u64 SMALL_ALIGNMENT = 16;  // of tables and counts

// Whether parts are ranges of lengths of their own: zenc/ranges.h.
inline bool is_ranged(const Call& call) {
    return call.part_bytes != nullptr;
}

// The first unit of a part of ranges.
inline u64 first_of_range(const Call& call, u64 part) {
    u64 first = 0;
    for (u64 i = 0; i < part; ++i) first += static_cast<u64>(call.part_slots[i]);
    return first;
}

inline Partition partition_of(const Call& call, u64 parts) {
    const i64 largest = *std::max_element(call.part_slots, call.part_slots + parts);
    const u64 units = static_cast<u64>(call.units);
    return {
        units,
        static_cast<u64>(call.width),
        parts,
        static_cast<u64>(largest),
        call.block == 0 ? Permutation(0, 0, 1) : Permutation(call.seed, units, static_cast<u64>(call.block)),
        HashFunction(call.seed, 0),
        call.tables};
}

class Queue {
public:
    // A queue for a call whose units are cut in `parts`.
    Queue(Call& call, Communicator& group, i64 parts)
        : call(call),
          row_bytes(static_cast<u64>(call.width * DTYPE_BYTES[call.dtype])),
          partition(partition_of(call, static_cast<u64>(parts))),
          kernels(*static_cast<Kernels*>(call.kernels)),
          group(group),
          awaited(group.awaited),
          overwrites(call.residual != nullptr),
          next_(static_cast<u8*>(call.arena)),
          left_(call.arena_bytes / SMALL_ALIGNMENT * SMALL_ALIGNMENT),
          stream_(static_cast<CUstream>(call.stream)),
          checked_(checks_launches()) {
        spare_.begin(next_);
        if (is_ranged(call)) partition.tables = table_of_ranges();
        if (kernels.has_tables && partition.tables == nullptr)
            fail(call, CUDA_FAILED, -1, "the kernels read tables of the parts, and this call has none");
    }

    bool ok() const { return zenc::ok(call); }

    // Blocks of THREADS threads for n threads, 1 at least.
    static u64 blocks_for(u64 n) { return blocks_up_to(MOST_BLOCKS, n); }

    // Blocks for n things, of which a block takes a tile at a time.
    static u64 blocks_for_tiles(u64 n, u64 tile) { return blocks_for(ceil_divide(n, tile) * THREADS); }

    // Launches blocks x rows blocks, where a row has a segment in a kernel that takes descriptors; nothing
    // for no rows. Arguments are words, structures of words, or tables of these (vectors), in the order of
    // the kernel's parameters. Tables travel among the parameters, or are uploaded if they are long.
    template <class... Arguments>
    void launch(const Kernel& kernel, u64 blocks, u64 rows, const Arguments&... arguments) {
        static_assert(sizeof...(Arguments) <= MOST_ARGUMENTS &&
                      (0 + ... + sizeof(Arguments)) / 8 <= MOST_WORDS);
        const CUstream into = stream();
        if (!ok() || blocks == 0 || rows == 0) return;
        const CUfunction function = kernels.of(kernel, call.dtype);
        if (function == nullptr) return fail(call, CUDA_FAILED, -1, "the kernels lack %s", kernel.name);
        held_.begin(kernel, blocks, rows);
        (pass(arguments), ...);
        if (kernel.ends != Ending::NONE) held_.epilogue.arrived = allocate_cleared<u64>(1);
        held_.function = function;
        if (kernel.ends == Ending::NONE) issue(into);
    }

    // Launches a kernel that takes a table and its length first, with a row of blocks for each entry.
    template <class Entry, class... Arguments>
    void launch_each(const Kernel& kernel, u64 blocks, const std::vector<Entry>& table,
                     const Arguments&... arguments) {
        launch(kernel, blocks, rows_for(table.size()), table, number_of(table), arguments...);
    }

    // Returns the epilogue of the last launch, to add `what`, which has `tables`; null if that can't be.
    template <class... Entries>
    Epilogue* epilogue(Ending what, const std::vector<Entries>&... tables) {
        const u64 words =
            (EPILOGUE_WORDS + ... + (held_.offset_of(tables) == 0 ? words_of_table(tables) : 0));
        const bool can = held_.function != nullptr && held_.next <= what && held_.used + words <= TABLE_WORDS;
        if (!can) return nullptr;
        held_.next = static_cast<Ending>(static_cast<int>(what) + 1);
        return &held_.epilogue;
    }

    // Places a table of an epilogue.
    template <class Entry>
    const Entry* at_end(const std::vector<Entry>& table) {
        const u64 there = held_.offset_of(table);
        return reinterpret_cast<const Entry*>(there != 0 ? there : held_.place(table.data(), table.size()));
    }

    // The stream, with everything on it that was asked for.
    CUstream stream() {
        if (held_.function != nullptr) issue(stream_);
        return stream_;
    }

    // Sets bytes of device memory.
    void fill(void* memory, unsigned char byte, u64 bytes) {
        if (ok() && bytes != 0)
            check(call, api.cuMemsetD8Async(address(memory), byte, bytes, stream()), "cuMemsetD8Async");
    }

    void clear(void* memory, u64 bytes) { fill(memory, 0, bytes); }

    // New memory of n values that are 0. Small pieces are cleared together, and none is released.
    template <class T>
    T* allocate_cleared(u64 n) {
        const u64 bytes = whole(n * sizeof(T)), all = bytes < CLEARED ? CLEARED : bytes;
        if (bytes > cleared_.bytes) {
            cleared_ = {allocate<u8>(all), all};
            clear(cleared_.at, all);
        }
        if (!ok() || bytes == 0) return nullptr;
        cleared_.bytes -= bytes;
        return reinterpret_cast<T*>(cleared_.at + cleared_.bytes);
    }

    // The device's copy of n values, in memory that is not released; null after a failure.
    template <class T>
    T* upload(const T* host, u64 n) {
        void* const pinned = stage(n * sizeof(T));
        T* const memory = allocate<T>(n);
        if (!ok() || n == 0) return nullptr;
        std::memcpy(pinned, host, n * sizeof(T));
        check(call, api.cuMemcpyHtoDAsync_v2(address(memory), pinned, n * sizeof(T), stream()),
              "cuMemcpyHtoDAsync");
        return memory;
    }

    void copy(void* to, const void* from, u64 bytes) {
        if (ok() && bytes != 0)
            check(call, api.cuMemcpyDtoDAsync_v2(address(to), address(from), bytes, stream()),
                  "cuMemcpyDtoDAsync");
    }

    // Uninitialised device memory, aligned to ALIGNMENT, or to SMALL_ALIGNMENT if it is little, until it is
    // released, or the caller drops it. Null for no bytes and after a failure. It was released before, or
    // comes from the arena as long as that lasts; after that, small requests share what the caller is asked
    // for, since asking may take the lock of an interpreter.
    void* allocate(u64 bytes) {
        if (u8* const released = reuse(whole(bytes))) return released;
        const u64 room = rounded(bytes);
        call.arena_wanted += room;
        if (room > left_ && bytes > SMALL) return begin(whole(bytes));
        if (room > left_) {
            spare_.give({next_, left_});
            next_ = begin(CHUNK);
            left_ = CHUNK;
        }
        if (!ok() || bytes == 0) return nullptr;
        left_ -= room;
        if (bytes < LEAST_REUSED) return next_ + left_;  // from the end: what is released shall touch
        return (next_ += room) - room;
    }

    template <class T>
    T* allocate(u64 n) {
        return static_cast<T*>(allocate(n * sizeof(T)));
    }

    // Returns released memory, for bytes that are worth a search, or null.
    u8* reuse(u64 bytes) { return bytes < LEAST_REUSED ? nullptr : spare_.take(bytes, ALIGNMENT); }

    // Keeps this memory for bitmaps once it is released: other requests would cut it in pieces, and bitmaps
    // of all parts or units will be wanted again.
    void keep_for_bitmaps(Room room) { kept_ = room; }

    u8* reuse_for_bitmap(u64 bytes) {
        u8* const released = bytes == 0 ? nullptr : bitmaps_.take(bytes, SMALL_ALIGNMENT);
        return released != nullptr ? released : reuse(whole(bytes));
    }

    u64* allocate_bitmap(u64 words) {
        u8* const released = reuse_for_bitmap(8 * words);
        return released != nullptr ? reinterpret_cast<u64*>(released) : allocate<u64>(words);
    }

    // The memory that some bytes take, to be released with them: so neighbours can be joined.
    static u64 whole(u64 bytes) { return SHARES ? rounded(bytes) : bytes; }

    // Releases memory that came from here: nothing that is put on the queue from now on uses it.
    void release(Room room) {
        if (!ok() || room.bytes == 0) return;
#ifdef __SANITIZE_ADDRESS__  // who uses it all the same shall notice
        fill(room.at, 0xCD, room.bytes);
#else
        (kept_.has(room) ? bitmaps_ : spare_).give(room);
#endif
    }

    template <class T>
    void release(T* memory, u64 n) {
        release(Room{reinterpret_cast<u8*>(memory), whole(n * sizeof(T))});
    }

    // Pinned memory until the end of the call.
    void* stage(u64 bytes) {
        if (!group.staging.has(bytes)) let_land();
        return ok() ? group.staging.take(call, bytes) : nullptr;
    }

    // Memory for results, which outlives the arena: an address that the call's `allocate` gave.
    void* allocate_alone(u64 bytes) {
        if (bytes != 0) let_land();
        if (!ok() || bytes == 0) return nullptr;
        const u64 memory = call.allocate(call.user, bytes);
        if (memory == 0)
            fail(call, OUT_OF_MEMORY, -1, "there is no device memory left for %llu bytes", bytes);
        return reinterpret_cast<void*>(memory);
    }

    Call& call;
    const u64 row_bytes;  // of a unit
    Partition partition;
    Kernels& kernels;
    Communicator& group;
    Awaited& awaited;
    bool overwrites;  // the tensor of a call that fails need not be as it was
    std::vector<bool>
        undefined;            // parts of the residual that are: of a call that begins so, until it is kept
    u64* greatest = nullptr;  // the greatest magnitude of the result, of a call that is asked if it is finite

private:
#ifdef __SANITIZE_ADDRESS__
    static constexpr bool SHARES = false;  // such memory has no guard, nor has what it is rounded up by
#else
    static constexpr bool SHARES = true;
#endif
    static constexpr u64 SMALL = SHARES ? 1 << 14 : 0;
    static constexpr u64 CHUNK = 1 << 18;
    static constexpr u64 CLEARED = SHARES ? 1 << 12 : 0;
    static constexpr u64 LEAST_REUSED = 1 << 10;

    u64* table_of_ranges() {
        std::vector<u64> words(Ranges::words(partition.parts));
        words[0] = partition.part_slots.divisor;
        for (u64 part = 0; part < partition.parts; ++part) {
            words[1 + part] = static_cast<u64>(call.part_slots[part]);
            words[1 + partition.parts + part] = first_of_range(call, part);
        }
        return upload(words.data(), words.size());
    }

    static u64 rounded(u64 bytes) {
        const u64 grain = bytes < LEAST_REUSED ? SMALL_ALIGNMENT : ALIGNMENT;
        return (bytes + grain - 1) / grain * grain;
    }

    // Waits for messages before CUDA is asked for memory, which may wait for all that runs on the device,
    // without a deadline. A captured call gets memory that it has.
    void let_land() {
        if (!ok() || awaited.empty() || call.report != nullptr) return;
        wait_for("a request for memory", stream());
        awaited.clear();
    }

    // Waits, on behalf of `what`, until the device has passed all that is on the stream.
    void wait_for(const char* what, CUstream on) {
        if (check(call, api.cuEventRecord(group.ready, on), "cuEventRecord"))
            await(call, group, std::string(what) + " in", awaited);
    }

    // Whether each launch is waited for, so that the kernel at fault is named; never while a stream is
    // captured.
    bool checks_launches() const {
        const char* const said = std::getenv("ZENC_GPU_CHECK");
        return said != nullptr && std::strcmp(said, "1") == 0 && call.report == nullptr;
    }

    static CUdeviceptr address(const void* memory) { return reinterpret_cast<CUdeviceptr>(memory); }

    u8* begin(u64 bytes) {
        u8* const memory = static_cast<u8*>(allocate_alone(bytes));
        spare_.begin(memory);
        return memory;
    }

    static constexpr u64 EPILOGUE_WORDS = sizeof(Epilogue) / 8;

    // Passes the next argument of the launch; for a table, the place where it lies.
    template <class Argument>
    void pass(const Argument& argument) {
        held_.pass(argument);
    }

    template <class Entry>
    void pass(const std::vector<Entry>& table) {
        const bool is_long = words_of_table(table) > TABLE_WORDS - held_.used;
        held_.pass(is_long ? reinterpret_cast<u64>(upload(table.data(), table.size()))
                           : held_.place(table.data(), table.size()));
    }

    // Puts what is held back on the stream.
    void issue(CUstream into) {
        const CUfunction function = held_.function;
        held_.function = nullptr;
        if (!ok()) return;
        const Epilogue& end = held_.epilogue;
        const bool ends =
            end.number_ranked + end.number_admitted + end.number_of_words + end.number_of_rows != 0;
        held_.tables.words[0] = ends ? held_.place(&end, 1) : 0;
        held_.parameters[held_.arguments] = &held_.tables;
        check(call,
              api.cuLaunchKernel(function, held_.blocks, held_.rows, 1, THREADS, 1, 1, 0, into,
                                 held_.parameters, nullptr),
              "cuLaunchKernel", held_.name);
        if (checked_ && ok()) wait_for(held_.name, into);
    }

    u8* next_;  // of the arena, or of memory that small requests share
    u64 left_;
    Spare spare_;
    Room kept_;
    Spare bitmaps_;  // what was released of it
    Room cleared_;   // what is left of it
    const CUstream stream_;
    const bool checked_;
    Launch held_;
};

using Segments = std::vector<Segment>;

// The largest of(entry) in a table.
template <class Entry, class Of>
inline u64 most(const std::vector<Entry>& table, Of of) {
    u64 found = 0;
    for (const Entry& each : table) found = std::max<u64>(found, of(each));
    return found;
}

inline u64 most_words(const Segments& segments) {
    return most(segments, [](const Segment& segment) { return words_of(segment.slots); });
}

// Blocks for kernels in which warps copy rows.
inline u64 blocks_for_rows(const Segments& segments, u64 row_bytes) {
    return Queue::blocks_for(
        32 * most(segments, [&](const Segment& segment) { return warps_for_rows(segment, row_bytes); }));
}

// Whether the result is made where the dense tensor is: then rows that nobody has are +0 already, since
// marking turns each of their -0 into +0. A row in several pieces may hold something that marking finds too
// late, and a tensor beside bits may hold anything.
inline i64 keeps_absent(const Call& call) {
    return call.ids == nullptr && call.dense_out == call.values && call.taken == nullptr &&
           call.width * DTYPE_BYTES[call.dtype] <= static_cast<i64>(MARKED_BYTES);
}

static const Kernel GATHER("zenc_gather");

// Numbers on the device, and their destinations.
using Wanted = std::vector<Gathered>;

inline Gathered literal(u64 word, u64* to = nullptr) {
    return {nullptr, reinterpret_cast<const u64*>(word), to};
}

// The count of a segment, which its ranks end with.
inline Gathered count_of(const Segment& segment, u64* to = nullptr) {
    return {segment.ranks + ranks_of(segment.slots) - 1, segment.ranks, to};
}

inline void gather(Queue& queue, const Wanted& rows) {
    if (rows.empty()) return;
    Epilogue* const end = queue.epilogue(Ending::GATHER, rows);
    if (end == nullptr) return queue.launch(GATHER, 1, 1, rows, number_of(rows));
    end->rows = queue.at_end(rows);
    end->number_of_rows = number_of(rows);
}

// Whether units ascend from slot to slot, and from part to part.
inline bool units_ascend(const Call& call) {
    return call.block == 0 && call.tables == nullptr;
}

// The first unit of a part of ascending units.
inline u64 first_unit(const Queue& queue, u64 part) {
    return is_ranged(queue.call) ? first_of_range(queue.call, part)
                                 : part * queue.partition.part_slots.divisor;
}

}  // namespace zenc
