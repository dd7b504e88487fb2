#include "driver/faults.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "engine/sanitizers.h"

namespace emulator {

namespace {

constexpr int ANYWHERE = -1;

struct Fault {
    std::string function;
    int where;
    unsigned nth;  // call that fails
    int code;
    unsigned calls;  // so far
};

std::mutex mutex;

std::vector<Fault>* parsed(const char* text) {
    auto* faults = new std::vector<Fault>;
    for (const char* next = text; *next;) {
        char name[64];
        int where = ANYWHERE, code, length = 0;
        unsigned nth;
        const bool anywhere = std::sscanf(next, "%63[a-zA-Z0-9]:%u=%d%n", name, &nth, &code, &length) == 3;
        if (!anywhere &&
            std::sscanf(next, "%63[a-zA-Z0-9]@%d:%u=%d%n", name, &where, &nth, &code, &length) != 4) {
            delete faults;
            return nullptr;
        }
        faults->push_back({name, where, nth, code, 0});
        next += length;
        if (*next == ',') next++;
    }
    return faults;
}

std::vector<Fault>& all() {
    static std::vector<Fault>* faults = [] {
        const char* text = std::getenv("EMULATOR_FAULTS");
        std::vector<Fault>* found = parsed(text ? text : "");
        if (found) return found;
        std::fprintf(stderr, "emulator: EMULATOR_FAULTS=%s is not NAME:K=CODE[,...]\n", text);
        std::abort();
    }();
    return *faults;
}

std::map<std::pair<std::string, int>, long long>& calls() {
    static std::map<std::pair<std::string, int>, long long> counted;
    return counted;
}

}  // namespace

int fault(const char* function, int where) {
    Unseen unseen;
    const std::lock_guard lock(mutex);
    ++calls()[{function, where}];
    int code = 0;
    for (Fault& fault : all()) {
        const bool here = fault.where == ANYWHERE || fault.where == where;
        if (here && fault.function == function && ++fault.calls == fault.nth) code = fault.code;
    }
    return code;
}

}  // namespace emulator

long long emulator_calls(const char* function, int where) {
    emulator::Unseen unseen;
    const std::lock_guard lock(emulator::mutex);
    return emulator::calls()[{function, where}];
}

int emulator_faults(const char* text) {
    emulator::Unseen unseen;
    const std::lock_guard lock(emulator::mutex);
    std::vector<emulator::Fault>* faults = emulator::parsed(text);
    if (!faults) return 0;
    emulator::all().swap(*faults);
    delete faults;
    return 1;
}
