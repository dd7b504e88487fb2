#include "driver/stream.h"

#include <chrono>
#include <utility>

#include "engine/sanitizers.h"
#include "engine/settings.h"

namespace emulator {

Stream::Stream(int device, bool waits_for_null)
    : device(device),
      waits_for_null(waits_for_null),
      delays_(settings().seed),
      thread_([this] { serve(); }) {}

Stream::~Stream() {
    {
        Unseen unseen;
        const std::lock_guard lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    thread_.join();
}

void Stream::push(std::function<void()> work) {
    auto* item = new Item{std::move(work), 0};
    release(&item->pushed);
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    items_.push_back(item);
    changed_.notify_all();
}

bool Stream::idle() {
    {
        Unseen unseen;
        const std::lock_guard lock(mutex_);
        if (busy_ || !items_.empty()) return false;
    }
    acquire(&done_);
    return true;
}

void Stream::wait() {
    {
        Unseen unseen;
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return !busy_ && items_.empty(); });
    }
    acquire(&done_);
}

Groups Stream::put(u64 group) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return std::exchange(groups_, {group});
}

void Stream::put_behind(const Groups& groups) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    groups_.insert(groups.begin(), groups.end());
}

Groups Stream::groups() {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return groups_;
}

void Stream::serve() {
    for (;;) {
        Item* item;
        {
            Unseen unseen;
            std::unique_lock lock(mutex_);
            busy_ = false;
            if (items_.empty()) changed_.notify_all();
            changed_.wait(lock, [this] { return stopping_ || !items_.empty(); });
            if (items_.empty()) return;
            item = items_.front();
            items_.pop_front();
            busy_ = true;
        }
        run(*item);
        Unseen unseen;  // whose memory it was is nobody's business
        delete item;
    }
}

// Items come late if there is a seed, so that code that does not wait for them is found.
void Stream::run(Item& item) {
    if (settings().seed > 0) std::this_thread::sleep_for(std::chrono::microseconds(draw(delays_) % 500));
    acquire(&item.pushed);
    item.work();
    release(&done_);
}

void Event::record(Stream* stream) {
    u64 record;
    {
        Unseen unseen;
        const std::lock_guard lock(state_->mutex);
        record = ++state_->recorded;
        groups_ = stream ? stream->groups() : Groups();
    }
    push(stream, [state = state_, record] { state->finish(record); });
}

Groups Event::groups() {
    Unseen unseen;
    const std::lock_guard lock(state_->mutex);
    return groups_;
}

bool Event::complete() {
    {
        Unseen unseen;
        const std::lock_guard lock(state_->mutex);
        if (state_->finished < state_->recorded) return false;
    }
    acquire(&state_->order);
    return true;
}

void Event::wait() {
    state_->wait_for(state_->newest());
}

void Event::hold(Stream* stream) {
    if (stream) {
        Unseen unseen;
        const std::lock_guard lock(state_->mutex);
        stream->put_behind(groups_);
    }
    push(stream, [state = state_, record = state_->newest()] { state->wait_for(record); });
}

float Event::milliseconds_since(const Event& start) const {
    return std::chrono::duration<float, std::milli>(state_->at - start.state_->at).count();
}

u64 Event::State::newest() {
    Unseen unseen;
    const std::lock_guard lock(mutex);
    return recorded;
}

void Event::State::wait_for(u64 record) {
    {
        Unseen unseen;
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return finished >= record; });
    }
    acquire(&order);
}

void Event::State::finish(u64 record) {
    release(&order);
    Unseen unseen;
    const std::lock_guard lock(mutex);
    finished = record;
    at = std::chrono::steady_clock::now();
    changed.notify_all();
}

void push(Stream* stream, std::function<void()> work) {
    if (stream)
        stream->push(std::move(work));
    else
        work();
}

}  // namespace emulator
