// Topological order, stable: nodes that are in order stay in order.

#include <unordered_map>

#include "frontend/onnx/source_graph.h"

namespace piper::frontend {

namespace {

// Every name a node reads, also inside the graphs of its attributes, except what those graphs
// define themselves.
void collect_reads(const ::onnx::NodeProto& node, std::vector<std::string>* reads) {
  for (const std::string& name : node.input()) {
    if (!name.empty()) reads->push_back(name);
  }
  for (const auto& attribute : node.attribute()) {
    if (!attribute.has_g()) continue;
    std::set<std::string> own;
    for (const auto& input : attribute.g().input()) own.insert(input.name());
    for (const auto& tensor : attribute.g().initializer()) own.insert(tensor.name());
    std::vector<std::string> inner;
    for (const auto& inner_node : attribute.g().node()) {
      for (const std::string& out : inner_node.output()) own.insert(out);
      collect_reads(inner_node, &inner);
    }
    for (const auto& output : attribute.g().output()) inner.push_back(output.name());
    for (std::string& name : inner) {
      if (!own.count(name)) reads->push_back(std::move(name));
    }
  }
}

// Who makes each value; false when two do.
bool find_producers(const std::vector<SourceNode>& nodes, const std::set<std::string>& known,
                    std::unordered_map<std::string, size_t>* producer,
                    support::Diagnostics& diagnostics) {
  for (size_t i = 0; i < nodes.size(); i++) {
    for (const std::string& name : nodes[i].proto.output()) {
      if (name.empty()) continue;
      if (producer->emplace(name, i).second && !known.count(name)) continue;
      diagnostics.report(support::Code::E0404, describe(nodes[i].proto, nodes[i].path) +
                                                   " makes value `" + name +
                                                   "`, which exists already");
      return false;
    }
  }
  return true;
}

}  // namespace

bool sort_nodes(std::vector<SourceNode>* nodes, const std::set<std::string>& known,
                support::Diagnostics& diagnostics) {
  std::unordered_map<std::string, size_t> producer;
  if (!find_producers(*nodes, known, &producer, diagnostics)) return false;
  std::vector<std::vector<size_t>> users(nodes->size());
  std::vector<int> waits(nodes->size(), 0);
  for (size_t i = 0; i < nodes->size(); i++) {
    std::vector<std::string> reads;
    collect_reads((*nodes)[i].proto, &reads);
    for (const std::string& name : reads) {
      if (auto it = producer.find(name); it != producer.end()) {
        users[it->second].push_back(i);
        waits[i]++;
      } else if (!known.count(name)) {
        diagnostics.report(support::Code::E0404, describe((*nodes)[i].proto, (*nodes)[i].path) +
                                                     " reads value `" + name +
                                                     "`, which nothing makes");
        return false;
      }
    }
  }
  std::set<size_t> ready;
  for (size_t i = 0; i < nodes->size(); i++) {
    if (waits[i] == 0) ready.insert(i);
  }
  std::vector<SourceNode> sorted;
  sorted.reserve(nodes->size());
  while (!ready.empty()) {
    const size_t next = *ready.begin();
    ready.erase(ready.begin());
    for (size_t user : users[next]) {
      if (--waits[user] == 0) ready.insert(user);
    }
    sorted.push_back(std::move((*nodes)[next]));
  }
  if (sorted.size() != nodes->size()) {
    diagnostics.report(support::Code::E0404, "the graph has a cycle");
    return false;
  }
  *nodes = std::move(sorted);
  return true;
}

}  // namespace piper::frontend
