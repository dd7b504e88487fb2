// The captures that are under way.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <thread>

#include "driver/capture.h"

namespace emulator {

struct Capture {
    Stream* origin;
    CaptureMode mode;
    std::thread::id thread;
    bool valid = true, open = true;
    Graph graph = {};
    std::map<Stream*, Nodes> streams = {};     // and what the next node of each comes after
    std::map<const void*, Nodes> series = {};  // and the last node of each
};

using SharedCapture = std::shared_ptr<Capture>;

// Held while captures are looked at.
class Locked {
public:
    Locked() { mutex().lock(); }
    ~Locked() { mutex().unlock(); }
    Locked(const Locked&) = delete;
    Locked& operator=(const Locked&) = delete;

private:
    static std::mutex& mutex() {
        static std::mutex one;
        return one;
    }
    Unseen unseen_;
};

// The captures that nobody has ended.
extern std::set<SharedCapture> captures;

// Null for none.
SharedCapture capture_of(Stream* stream);

// A capture with which work on the null stream would interfere; null for none, and for other streams. The
// null stream waits for all streams of its context that were not made to run beside it.
SharedCapture implied(const Stream* stream);

// Returns why.
Result invalidate(const SharedCapture& capture, Result why);

}  // namespace emulator
