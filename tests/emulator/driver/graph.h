// Graphs of captured work, and what can be launched of them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "driver/stream.h"

namespace emulator {

using Work = std::function<void()>;

// Gives the work of one run, at the time at which that is put on a stream.
using Post = std::function<Work(Stream*)>;  // for the stream that it is put on

// Numbers of nodes.
using Nodes = std::vector<size_t>;

struct Node {
    Post post;
    Nodes after;  // earlier ones
};

// A graph: its nodes, in the order in which they were captured.
class Graph {
public:
    size_t add(Post post, Nodes after);

    // A flag for each node: whether it is one of these, or comes before one.
    std::vector<char> behind(const Nodes& nodes) const;

    const std::vector<Node>& nodes() const { return nodes_; }

private:
    std::vector<Node> nodes_;
};

// A graph that can be launched. Each chain of nodes has a stream of its own, so that nodes of which none has
// to come after the other really run beside each other.
class GraphExec {
public:
    explicit GraphExec(Graph graph);

    // Puts all of it on a stream, once. It does not begin before its launch before that has ended.
    void launch(Stream* stream);

private:
    void post(size_t number);

    const Graph graph_;
    std::vector<size_t> chain_of_;  // by node
    std::vector<char> waited_for_;  // by node: whether other chains do
    std::vector<std::unique_ptr<Stream>> chains_;
    std::vector<Event> done_;  // by node
    Event ended_;
    std::mutex mutex_;
};

}  // namespace emulator
