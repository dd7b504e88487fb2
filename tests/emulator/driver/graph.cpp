#include "driver/graph.h"

#include <utility>

#include "engine/sanitizers.h"

namespace emulator {

size_t Graph::add(Post post, Nodes after) {
    nodes_.push_back({std::move(post), std::move(after)});
    return nodes_.size() - 1;
}

std::vector<char> Graph::behind(const Nodes& nodes) const {
    std::vector<char> found(nodes_.size(), false);
    for (const size_t number : nodes) found[number] = true;
    for (size_t number = nodes_.size(); number-- > 0;)
        if (found[number])
            for (const size_t earlier : nodes_[number].after) found[earlier] = true;
    return found;
}

// A node goes on with the chain of one that it comes after, if nothing else did.
GraphExec::GraphExec(Graph graph)
    : graph_(std::move(graph)), waited_for_(graph_.nodes().size()), done_(graph_.nodes().size()) {
    std::vector<size_t> last;  // node of each chain
    for (size_t number = 0; number < graph_.nodes().size(); number++) {
        size_t chain = last.size();
        for (const size_t earlier : graph_.nodes()[number].after)
            if (last[chain_of_[earlier]] == earlier) chain = chain_of_[earlier];
        if (chain == last.size()) last.push_back(number);
        last[chain] = number;
        chain_of_.push_back(chain);
        for (const size_t earlier : graph_.nodes()[number].after)
            if (chain_of_[earlier] != chain) waited_for_[earlier] = true;
    }
    for (size_t chain = 0; chain < last.size(); chain++) chains_.push_back(std::make_unique<Stream>());
}

void GraphExec::launch(Stream* stream) {
    Unseen unseen;
    const std::lock_guard lock(mutex_);
    Seen seen;
    ended_.hold(stream);
    Event begun;
    begun.record(stream);
    for (const auto& chain : chains_) begun.hold(chain.get());
    for (size_t number = 0; number < graph_.nodes().size(); number++) post(number);
    for (const auto& chain : chains_) {
        Event last;
        last.record(chain.get());
        last.hold(stream);
    }
    ended_.record(stream);
}

void GraphExec::post(size_t number) {
    const Node& node = graph_.nodes()[number];
    Stream& chain = *chains_[chain_of_[number]];
    for (const size_t earlier : node.after)
        if (chain_of_[earlier] != chain_of_[number]) done_[earlier].hold(&chain);
    chain.push(node.post(&chain));
    if (waited_for_[number]) done_[number].record(&chain);
}

}  // namespace emulator
