#include "engine/launch.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/errors.h"
#include "engine/sanitizers.h"
#include "engine/settings.h"
#include "engine/worker.h"

namespace emulator {

namespace {

// The OS threads that help one thread with its launches. That one works too: a single block needs no other.
class Team {
public:
    ~Team() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        changed_.notify_all();
        for (std::thread& helper : helpers_) helper.join();
    }

    void work(Launch& launch) {
        Unseen unseen;
        const u64 wanted = std::min<u64>(settings().workers, launch.total()) - 1;
        while (helpers_.size() < wanted) helpers_.emplace_back([this, i = helpers_.size()] { help(i); });
        {
            const std::lock_guard lock(mutex_);
            launch_ = &launch;
            wanted_ = busy_ = wanted;
            launches_++;
        }
        changed_.notify_all();
        own_.work(launch);
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return busy_ == 0; });
    }

private:
    void help(size_t number) {
        Unseen unseen;
        Worker worker;
        u64 seen = 0;
        std::unique_lock lock(mutex_);
        for (;;) {
            changed_.wait(lock, [&] { return stopping_ || (launches_ != seen && number < wanted_); });
            if (stopping_) return;
            seen = launches_;
            lock.unlock();
            worker.work(*launch_);
            lock.lock();
            if (--busy_ == 0) changed_.notify_all();
        }
    }

    Worker own_;
    std::vector<std::thread> helpers_;
    std::mutex mutex_;
    std::condition_variable changed_;
    Launch* launch_ = nullptr;
    u64 launches_ = 0, wanted_ = 0, busy_ = 0;
    bool stopping_ = false;
};

// The means of a thread for its launches, from its first one to its end.
class Teams {
public:
    ~Teams() {
        Unseen unseen;
        team_.reset();
    }

    Team& own() {
        Unseen unseen;
        if (!team_) team_ = std::make_unique<Team>();
        return *team_;
    }

private:
    std::unique_ptr<Team> team_;
};

}  // namespace

bool run(const Kernel& kernel, dim3 blocks, dim3 threads, const u64* words, u64 seed) {
    const u64 block_size = static_cast<u64>(threads.x) * threads.y * threads.z;
    const auto now = std::chrono::steady_clock::now();
    Launch launch{kernel, words, blocks, threads, seed, now + Seconds(settings().seconds)};
    if (launch.total() == 0 || block_size == 0 || block_size > MOST_THREADS) {
        keep_error(text("%s: a grid of %llu blocks of %llu threads can't be launched", kernel.name,
                        launch.total(), block_size));
        return false;
    }
    if (seed > 0) {
        launch.first = draw(seed) % launch.total();
        launch.stride = 1 + draw(seed) % launch.total();
        while (std::gcd(launch.stride, launch.total()) != 1) launch.stride++;
    }
    static thread_local Teams teams;
    release(&launch.started);
    if (emulator_watcher) emulator_watcher(kernel.name, 0);
    teams.own().work(launch);
    if (emulator_watcher) emulator_watcher(kernel.name, 1);
    acquire(&launch.ended);
    return !launch.failed;
}

}  // namespace emulator

extern "C" {
void (*emulator_watcher)(const char* name, emulator::u64 what) = nullptr;

int emulator_run(const emulator::Kernel* kernel, const unsigned* blocks, const unsigned* threads,
                 const emulator::u64* words, emulator::u64 seed) {
    return emulator::run(*kernel, {blocks[0], blocks[1], blocks[2]}, {threads[0], threads[1], threads[2]},
                         words, seed);
}

void emulator_take_error(char* out, int size) {
    std::snprintf(out, static_cast<size_t>(size), "%s", emulator::take_error().c_str());
}
}
