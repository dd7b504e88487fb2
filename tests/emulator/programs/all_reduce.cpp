// all_reduce KERNELS INTERPRETER CASE RESULT CALLS SECONDS: ranks, threads of this process, sum what CASE
// says, CALLS times, by its call sequences with the kernels in KERNELS. No wait is longer than SECONDS. Ends
// with 1 if a call failed.
//
// CASE and RESULT are words of 8 bytes; values are as in memory, with zeros up to 8 bytes:
//   CASE   = ranks, units, width, dtype, bytes of a value, divisor, is dense, parts, part slots [parts],
//            own share, sum share (doubles), words of tables, tables; then for each rank the words of
//            its call sequence, these, n (units of a dense tensor), ids [n] if sparse, values [n, width]
//   RESULT = for each rank count, ids [count] if sparse, values [count, width]
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "nccl/nccl.h"
#include "zenc_host/call_args.h"

namespace {

using zenc::i64;
using zenc::u64;
using zenc::u8;

i64 deadline;  // microseconds

void check(bool well, const char* what) {
    if (well) return;
    std::fprintf(stderr, "%s\n", what);
    std::exit(2);
}

#define CHECK(call) check((call) == 0, #call)

// The functions of the interpreter.
struct Unit {
    i64 (*bind)(const char* cuda, const char* nccl, char* error, u64 size);
    void* (*load_kernels)(const void* image, void* fetch, i64 tables, char* error, u64 size);
    void (*unload_kernels)(void* kernels);
    void* (*open_communicator)(const u8* id, i64 ranks, i64 rank, i64 deadline, char* error, u64 size);
    void (*close_communicator)(void* communicator);
    void* (*load_program)(const i64* words, i64 n);
    void (*unload_program)(void* program);
    i64 (*all_reduce)(zenc::Call* call);

    explicit Unit(const char* path) {
        void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        check(library != nullptr, path);
        find(library, "zenc_bind", bind);
        find(library, "zenc_load_kernels", load_kernels);
        find(library, "zenc_unload_kernels", unload_kernels);
        find(library, "zenc_open_communicator", open_communicator);
        find(library, "zenc_close_communicator", close_communicator);
        find(library, "zenc_load_program", load_program);
        find(library, "zenc_unload_program", unload_program);
        find(library, "zenc_all_reduce", all_reduce);
    }

    template <class Function>
    static void find(void* library, const char* name, Function*& function) {
        function = reinterpret_cast<Function*>(dlsym(library, name));
        check(function != nullptr, name);
    }
};

class Words {
public:
    explicit Words(const char* path) {
        std::FILE* file = std::fopen(path, "rb");
        check(file != nullptr, path);
        i64 word;
        while (std::fread(&word, sizeof word, 1, file) == 1) all_.push_back(word);
        std::fclose(file);
    }

    i64 next() { return all_.at(at_++); }

    std::vector<i64> next(i64 count) {
        const auto first = all_.begin() + static_cast<std::ptrdiff_t>(at_);
        at_ += static_cast<size_t>(count);
        return std::vector<i64>(first, first + count);
    }

private:
    std::vector<i64> all_;
    size_t at_ = 0;
};

struct Input {
    std::vector<i64> sequence;
    i64 n;
    std::vector<i64> ids, values;
};

struct Case {
    i64 ranks, units, width, dtype, value_bytes, divisor, dense, parts;
    std::vector<i64> part_slots;
    double own_share, sum_share;
    i64 seed, block;
    std::vector<i64> tables;
    std::vector<Input> inputs;

    explicit Case(Words words)
        : ranks(words.next()),
          units(words.next()),
          width(words.next()),
          dtype(words.next()),
          value_bytes(words.next()),
          divisor(words.next()),
          dense(words.next()),
          parts(words.next()),
          part_slots(words.next(parts)),
          own_share(number(words.next())),
          sum_share(number(words.next())),
          seed(words.next()),
          block(words.next()),
          tables(words.next(words.next())) {
        for (i64 rank = 0; rank < ranks; rank++) {
            const std::vector<i64> sequence = words.next(words.next());
            const i64 n = words.next();
            inputs.push_back({sequence, n, words.next(dense ? 0 : n), words.next(words_of(n))});
        }
    }

    static double number(i64 word) {
        double value;
        std::memcpy(&value, &word, sizeof value);
        return value;
    }

    i64 words_of(i64 rows) const { return (rows * width * value_bytes + 7) / 8; }
};

// A device, in the thread that uses it, and the memory that was taken from it.
class Device {
public:
    explicit Device(i64 ordinal) {
        emulator::Context* context = nullptr;
        CHECK(cuDevicePrimaryCtxRetain(&context, static_cast<int>(ordinal)));
        CHECK(cuCtxSetCurrent(context));
        CHECK(cuStreamCreate(&stream, 1));
    }

    ~Device() {
        free_all();
        CHECK(cuStreamDestroy_v2(stream));
    }

    // 0 if there is none left.
    u64 take(u64 bytes) {
        u64 memory = 0;
        if (cuMemAlloc_v2(&memory, bytes) == 0) taken_.push_back(memory);
        return memory;
    }

    template <class T>
    T* uploaded(const std::vector<i64>& words) {
        const u64 memory = take(8 * words.size() + 8);
        CHECK(cuMemcpyHtoDAsync_v2(memory, words.data(), 8 * words.size(), stream));
        return reinterpret_cast<T*>(memory);
    }

    std::vector<i64> downloaded(const void* memory, size_t bytes) {
        std::vector<i64> words((bytes + 7) / 8);
        CHECK(cuMemcpyDtoHAsync_v2(words.data(), reinterpret_cast<u64>(memory), bytes, stream));
        CHECK(cuStreamSynchronize(stream));
        return words;
    }

    void free_all() {
        CHECK(cuStreamSynchronize(stream));
        for (const u64 memory : taken_) CHECK(cuMemFree_v2(memory));
        taken_.clear();
    }

    static u64 allocate(void* device, u64 bytes) { return static_cast<Device*>(device)->take(bytes); }

    emulator::Stream* stream = nullptr;

private:
    std::vector<u64> taken_;
};

class Rank {
public:
    Rank(const Case& of, const Unit& unit, const char* image, const emulator::UniqueId& id, i64 rank)
        : case_(of), unit_(unit), input_(of.inputs[static_cast<size_t>(rank)]), rank_(rank), device_(rank) {
        char error[512] = "";
        kernels_ = unit.load_kernels(image, nullptr, 0, error, sizeof error);
        check(kernels_ != nullptr, error);
        const std::vector<i64>& table = input_.sequence;
        program_ = unit.load_program(table.data(), static_cast<i64>(table.size()));
        const auto* name = reinterpret_cast<const u8*>(id.text);
        communicator_ = unit.open_communicator(name, of.ranks, rank, deadline, error, sizeof error);
        check(communicator_ != nullptr, error);
    }

    ~Rank() {
        device_.free_all();
        unit_.close_communicator(communicator_);
        unit_.unload_program(program_);
        unit_.unload_kernels(kernels_);
    }

    // The result of a call, as RESULT has it; nothing if it fails.
    std::vector<i64> sum(u64 number) {
        device_.free_all();
        std::vector<i64> counts_in(static_cast<size_t>(case_.parts)), counts_out(counts_in);
        zenc::Call call = {};
        describe(call, number);
        call.counts_in = counts_in.data();
        call.counts_out = counts_out.data();
        if (unit_.all_reduce(&call) == zenc::DONE) return result(call);
        std::fprintf(stderr, "call %llu of rank %lld failed with outcome %lld: %s\n", number, rank_,
                     call.outcome, call.message);
        return {};
    }

private:
    void describe(zenc::Call& call, u64 number) {
        call.number = number;
        call.signature = 7;
        call.units = case_.units;
        call.width = case_.width;
        call.dtype = case_.dtype;
        if (!case_.tables.empty()) call.tables = device_.uploaded<u64>(case_.tables);
        call.own_share = case_.own_share;
        call.sum_share = case_.sum_share;
        call.seed = static_cast<u64>(case_.seed);
        call.block = case_.block;
        call.part_slots = case_.part_slots.data();
        if (!case_.dense) call.ids = device_.uploaded<i64>(input_.ids);
        call.n = case_.dense ? 0 : input_.n;
        call.values = device_.uploaded<void>(input_.values);
        call.divisor = case_.divisor;
        if (case_.dense) call.dense_out = reinterpret_cast<void*>(device_.take(8 * input_.values.size() + 8));
        call.kernels = kernels_;
        call.program = program_;
        call.communicator = communicator_;
        call.stream = device_.stream;
        call.allocate = Device::allocate;
        call.user = &device_;
        call.deadline = deadline;
    }

    std::vector<i64> result(const zenc::Call& call) {
        const i64 count = case_.dense ? case_.units : call.count_out;
        std::vector<i64> words = {count};
        if (!case_.dense) append(words, device_.downloaded(call.ids_out, 8 * static_cast<size_t>(count)));
        const size_t bytes = static_cast<size_t>(count * case_.width * case_.value_bytes);
        append(words, device_.downloaded(case_.dense ? call.dense_out : call.values_out, bytes));
        return words;
    }

    static void append(std::vector<i64>& words, const std::vector<i64>& more) {
        words.insert(words.end(), more.begin(), more.end());
    }

    const Case& case_;
    const Unit& unit_;
    const Input& input_;
    const i64 rank_;
    Device device_;
    void *kernels_ = nullptr, *program_ = nullptr, *communicator_ = nullptr;
};

}  // namespace

int main(int, char** arguments) {
    deadline = static_cast<i64>(1e6 * std::atof(arguments[6]));
    const Case what{Words(arguments[3])};
    const Unit unit(arguments[2]);
    Dl_info engine;
    check(dladdr(reinterpret_cast<void*>(cuInit), &engine) != 0, "dladdr");
    char error[512] = "";
    check(unit.bind(engine.dli_fname, engine.dli_fname, error, sizeof error) != 0, error);
    emulator::UniqueId id;
    CHECK(ncclGetUniqueId(&id));
    std::vector<std::vector<i64>> results(static_cast<size_t>(what.ranks));
    std::vector<std::thread> threads;
    for (i64 rank = 0; rank < what.ranks; rank++)
        threads.emplace_back([&, rank] {
            Rank own(what, unit, arguments[1], id, rank);
            for (int call = 1; call <= std::atoi(arguments[5]); call++)
                results[static_cast<size_t>(rank)] = own.sum(static_cast<u64>(call));
        });
    for (std::thread& thread : threads) thread.join();
    std::FILE* file = std::fopen(arguments[4], "wb");
    bool well = file != nullptr;
    for (const std::vector<i64>& words : results)
        well = well && !words.empty() && std::fwrite(words.data(), 8, words.size(), file) == words.size();
    return well && std::fclose(file) == 0 ? 0 : 1;
}
