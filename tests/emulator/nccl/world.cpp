#include "nccl/world.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include "engine/errors.h"
#include "engine/sanitizers.h"
#include "engine/settings.h"
#include "nccl/messages.h"
#include "nccl/nccl.h"

namespace emulator {

namespace {

Seconds patience() {
    return Seconds(settings().seconds);
}

// Numbers of threads, which are never used again.
u64 this_thread() {
    static std::atomic<u64> count{0};
    thread_local const u64 number = ++count;
    return number;
}

// Whether the group can't end without the rank.
bool needs(const Group& group, int rank) {
    return group.waits_to_reduce() || group.waits_to_meet(rank);
}

}  // namespace

std::mutex World::mutex_;
World::Tickets World::posted_;
u64 World::tickets_ = 0;
std::set<World*> World::worlds_;

World::World(int size)
    : size_(size),
      number_([] {
          static std::atomic<int> count{0};
          return count++;
      }()),
      ranks_(static_cast<size_t>(size)) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    worlds_.insert(this);
}

World::~World() {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    worlds_.erase(this);
}

int World::join(int rank, int size) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    if (size != size_ || rank < 0 || rank >= size_ || ranks_[rank].joined) return NCCL_INVALID_ARGUMENT;
    ranks_[rank].joined = true;
    ranks_[rank].thread = this_thread();
    changed_.notify_all();
    return NCCL_SUCCESS;
}

bool World::complete() {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return all_joined();
}

bool World::all_joined() const {
    return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.joined; });
}

bool World::wait_until_complete(int rank) {
    Unseen unseen;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, patience(), [&] { return all_joined() || ranks_[rank].aborted; });
    return all_joined() && !ranks_[rank].aborted;
}

bool World::wait_until_aborted(int rank) {
    Unseen unseen;
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience(), [&] { return ranks_[rank].aborted; });
}

void World::post(Group& group, Stream* stream) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    Rank& rank = ranks_[group.rank];
    if (rank.begun != 0 && rank.thread != this_thread())
        rank.thread = 0;
    else
        rank.thread = this_thread();
    group.number = rank.begun++;
    group.ticket = ++tickets_;
    Groups after = stream ? stream->put(group.ticket) : Groups();
    after.insert(std::exchange(rank.newest, group.ticket));
    posted_[group.ticket] = {this, group.rank, group.number, std::move(after)};
    find_deadlock();
}

// Sleeps as if all that it may post next were posted already, behind the groups. Nobody knows what comes next
// from a rank that several threads post for.
std::set<u64> World::sleep(const Groups& groups) {
    std::set<u64> tickets;
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    for (World* world : worlds_)
        for (int rank = 0; rank < world->size_; rank++)
            if (world->ranks_[rank].thread == this_thread() && !groups.empty()) {
                posted_[++tickets_] = {world, rank, world->ranks_[rank].begun, groups, true};
                tickets.insert(tickets_);
            }
    if (!tickets.empty()) find_deadlock();
    return tickets;
}

void World::wake(const std::set<u64>& tickets) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    for (const u64 ticket : tickets) posted_.erase(ticket);
}

void World::run(Group& group) {
    Rank& rank = ranks_[group.rank];
    release(&group.before);
    {
        Unseen unseen;
        std::unique_lock lock(mutex_);
        const auto until = std::chrono::steady_clock::now() + patience();
        const auto over = [&] { return rank.aborted || rank.dead || rank.error; };
        changed_.wait(lock, [&] { return rank.ended == group.number || over(); });
        if (!over()) {
            rank.group = &group;
            meet(group);
            find_deadlock();
            changed_.notify_all();
        }
        const auto ended = [&] { return group.done() || rank.error || rank.aborted; };
        if (rank.dead)
            changed_.wait(lock, [&] { return rank.aborted; });
        else if (!changed_.wait_until(lock, until, ended))
            time_out(group);
        rank.group = nullptr;
        rank.ended++;
        posted_.erase(group.ticket);
        changed_.notify_all();
    }
    acquire(&group.after);
}

// Moves what has both of its sides. The first send to a rank meets the first receive there.
void World::meet(Group& group) {
    for (Transfer& own : group.transfers) {
        Group* other = ranks_[own.peer].group;
        if (!other || own.done || ranks_[own.peer].error) continue;
        Transfer* match = partner(own, group.rank);
        if (!match) continue;
        if (match->count != own.count || match->type != own.type) {
            const std::string why = described(own, group.rank) + ", but " + described(*match, own.peer);
            fail(own.peer, NCCL_INVALID_ARGUMENT, why);
            return fail(group.rank, NCCL_INVALID_ARGUMENT, why);
        }
        own.sends ? exchange(group, own, *other, *match) : exchange(*other, *match, group, own);
    }
    if (group.waits_to_reduce()) meet_to_reduce();
    for (int rank = 0; rank < size_; rank++)
        if (ranks_[rank].aborted && !ranks_[rank].dead && needs(group, rank))
            fail(group.rank, NCCL_REMOTE_ERROR, text("rank %d aborted", rank));
}

// Reduces, once all ranks have come with a reduction.
void World::meet_to_reduce() {
    std::vector<Group*> groups;
    for (const Rank& rank : ranks_)
        if (rank.group && !rank.error && rank.group->waits_to_reduce()) groups.push_back(rank.group);
    if (groups.size() < ranks_.size()) return;
    const std::string why = disagreement(groups);
    if (why.empty()) return reduce(groups);
    for (Group* group : groups) fail(group->rank, NCCL_INVALID_ARGUMENT, why);
}

// Whether the group can't end before the rank has come with something else than what it is at.
bool World::waits_for(const Group& group, int rank) {
    const Group* other = ranks_[rank].group;
    return group.waits_to_meet(rank) || (group.waits_to_reduce() && !(other && other->waits_to_reduce()));
}

Transfer* World::partner(const Transfer& transfer, int rank) {
    for (Transfer& other : ranks_[transfer.peer].group->transfers)
        if (!other.done && other.peer == rank && other.sends != transfer.sends) return &other;
    return nullptr;
}

void World::exchange(Group& a, Transfer& from, Group& b, Transfer& to) {
    Seen seen;
    acquire(&a.before);
    acquire(&b.before);
    std::memcpy(to.memory, from.memory, from.count * bytes_of(from.type));
    note_message(a.rank, b.rank, to.memory, from.count * bytes_of(from.type));
    release(&a.after);
    release(&b.after);
    from.done = to.done = true;
}

Group* World::running(u64 ticket, const Posted& posted) {
    Group* const group = ranks_[posted.rank].group;
    return group && group->ticket == ticket ? group : nullptr;
}

bool World::may_be_stuck(u64 ticket, const Posted& posted) {
    const Rank& rank = ranks_[posted.rank];
    const Group* const group = running(ticket, posted);
    return !rank.error && !rank.aborted && !rank.dead && !(group && group->done());
}

// Whether a group can't end before one of those that are stuck.
bool World::waits(u64 ticket, const Posted& posted, const Tickets& stuck) {
    const Group* const group = posted.world->running(ticket, posted);
    for (const auto& [other, one] : stuck) {
        if (!group && posted.after.count(other)) return true;
        const bool is_next = one.world == posted.world && one.number == one.world->ranks_[one.rank].ended;
        if (group && is_next && posted.world->waits_for(*group, one.rank)) return true;
    }
    return false;
}

// Groups that wait for each other in a circle: of all that wait, those are taken out who wait only for what
// may still come, until none is left to take out.
void World::find_deadlock() {
    Tickets stuck;
    for (const auto& [ticket, posted] : posted_)
        if (posted.world->may_be_stuck(ticket, posted)) stuck.emplace(ticket, posted);
    for (size_t before = 0; before != stuck.size();) {
        before = stuck.size();
        for (auto one = stuck.begin(); one != stuck.end();)
            one = waits(one->first, one->second, stuck) ? std::next(one) : stuck.erase(one);
    }
    std::map<std::pair<int, int>, std::string> first;  // of communicators and ranks
    std::set<World*> worlds;
    for (const auto& [ticket, posted] : stuck) {
        worlds.insert(posted.world);
        if (const Group* const group = posted.world->running(ticket, posted))
            first[{posted.world->number_, posted.rank}] = described_first_left(*group);
        else if (posted.is_host && posted.number == posted.world->ranks_[posted.rank].ended)
            first.insert({{posted.world->number_, posted.rank},
                          text("rank %d: its host waits for the device first", posted.rank)});
    }
    std::string circle;
    for (const auto& [at, what] : first)
        circle += (circle.empty() ? "" : "; ") +
                  (worlds.size() > 1 ? text("communicator %d, ", at.first) : std::string()) + what;
    const char* const why = worlds.size() > 1 ? "communicators wait for each other (do all ranks post to "
                                                "them in one order, where streams order them?): "
                                              : "ranks wait for each other (is a group missing, or a peer "
                                                "wrong?): ";
    for (const auto& [ticket, posted] : stuck)
        posted.world->fail(posted.rank, NCCL_INVALID_USAGE, why + circle);
    for (World* world : worlds) world->changed_.notify_all();
}

void World::time_out(Group& group) {
    fail(group.rank, NCCL_SYSTEM_ERROR,
         described_first_left(group) + text(" has waited for %.1f s", settings().seconds));
}

void World::fail(int number, int error, const std::string& why) {
    Rank& rank = ranks_[number];
    if (rank.error) return;
    std::fprintf(stderr, "emulator: NCCL on rank %d: %s\n", number, why.c_str());
    rank.error = error;
    rank.message = why;
}

void World::abort(int rank) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    ranks_[rank].aborted = true;
    if (!ranks_[rank].dead) fail_waiting_for(rank);
    changed_.notify_all();
}

void World::fail_waiting_for(int rank) {
    for (const Rank& other : ranks_)
        if (other.group && needs(*other.group, rank))
            fail(other.group->rank, NCCL_REMOTE_ERROR, text("rank %d aborted", rank));
}

void World::die(int rank) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    ranks_[rank].dead = true;
    ranks_[rank].error = NCCL_SYSTEM_ERROR;
    ranks_[rank].message = "the rank is dead, on demand";
    changed_.notify_all();
}

bool World::is_over(int rank) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return ranks_[rank].aborted || ranks_[rank].error;
}

int World::error(int rank) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return ranks_[rank].error;
}

std::string World::message(int rank) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    return ranks_[rank].message;
}

HostWait::HostWait(const Groups& groups) : tickets_(World::sleep(groups)) {}

HostWait::~HostWait() {
    World::wake(tickets_);
}

}  // namespace emulator
