// All transports give the same results: sums in the order of the members, messages by tag, failures everywhere.
#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/sum.h"
#include "tests/runtime/ranks.h"

namespace piper::runtime {

namespace {

using ir::DType;
using Seconds = std::chrono::duration<double>;

struct Kind {
  std::string name;
  std::function<Job(int, Failures&)> make;
};

LoopbackOptions loopback(bool rendezvous, uint64_t seed) {
  LoopbackOptions options;
  options.rendezvous = rendezvous;
  options.delay_seed = seed;
  return options;
}

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"loopback, buffered", [](int n, Failures& f) { return loopback_job(n, loopback(false, 0), f); }},
      {"loopback, rendezvous", [](int n, Failures& f) { return loopback_job(n, loopback(true, 0), f); }},
      {"loopback, random delays", [](int n, Failures& f) { return loopback_job(n, loopback(true, 7), f); }},
      {"gloo", gloo_job},
  };
  return all;
}

// Values whose sum depends on the order of adding.
template <class T>
T value_of(int rank, size_t i) {
  return static_cast<T>(std::sin(static_cast<double>(i) * 0.7 + rank) * std::pow(10.0, (rank * 5 + i) % 7));
}

template <class T>
std::vector<T> values_of(int rank, size_t count) {
  std::vector<T> values(count);
  for (size_t i = 0; i < count; i++) values[i] = value_of<T>(rank, i);
  return values;
}

// The sum as one device that adds rank after rank would take it.
template <class T>
std::vector<T> expected_sum(const std::vector<int32_t>& ranks, size_t count) {
  std::vector<T> sum = values_of<T>(ranks[0], count);
  for (size_t r = 1; r < ranks.size(); r++) {
    const std::vector<T> part = values_of<T>(ranks[r], count);
    for (size_t i = 0; i < count; i++) sum[i] += part[i];
  }
  return sum;
}

template <class T>
bool equal_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0);
}

// Runs `work` as all ranks over each transport.
void on_all_transports(int world_size, const std::vector<std::vector<int32_t>>& groups,
                       const std::function<void(Transport&, Failures&)>& work) {
  for (const Kind& kind : kinds()) {
    Failures failures;
    Job job = kind.make(world_size, failures);
    if (!job.empty()) {
      run_threads(world_size, [&](int rank) {
        Transport& transport = *job[static_cast<size_t>(rank)];
        if (failures.ok(transport.set_groups(groups), "set_groups")) work(transport, failures);
      });
    }
    INFO(kind.name);
    CHECK(failures.all() == "");
    CHECK(!job.empty());
  }
}

template <class T>
void check_reductions(Transport& transport, Failures& failures, int group, const std::vector<int32_t>& ranks,
                      size_t count) {
  const DType dtype = sizeof(T) == 4 ? DType::kF32 : DType::kF64;
  const std::string what = std::to_string(count) + " elements on rank " + std::to_string(transport.rank());
  std::vector<T> data = values_of<T>(transport.rank(), count);
  if (!failures.ok(transport.all_reduce(group, 1, data.data(), count, dtype), "all_reduce " + what)) return;
  failures.check(equal_bits(data, expected_sum<T>(ranks, count)), "all_reduce: wrong sum of " + what);

  const size_t size = ranks.size();
  const size_t member = static_cast<size_t>(std::find(ranks.begin(), ranks.end(), transport.rank()) - ranks.begin());
  std::vector<T> whole = values_of<T>(transport.rank(), count * size);
  std::vector<T> part(count);
  if (!failures.ok(transport.reduce_scatter(group, 2, whole.data(), part.data(), count, dtype), "reduce_scatter")) {
    return;
  }
  const std::vector<T> sums = expected_sum<T>(ranks, count * size);
  const auto begin = sums.begin() + static_cast<std::ptrdiff_t>(member * count);
  const std::vector<T> mine(begin, begin + static_cast<std::ptrdiff_t>(count));
  failures.check(equal_bits(part, mine), "reduce_scatter: wrong sum of " + what);

  // Gathering the parts again, in place.
  std::vector<T> gathered(count * size);
  std::copy(part.begin(), part.end(), gathered.begin() + static_cast<std::ptrdiff_t>(member * count));
  T* own = gathered.data() + member * count;
  if (!failures.ok(transport.all_gather(group, 3, own, gathered.data(), count * sizeof(T)), "all_gather")) return;
  failures.check(equal_bits(gathered, sums), "all_gather: wrong parts of " + what);

  for (size_t root = 0; root < size; root++) {
    std::vector<T> sent = values_of<T>(transport.rank(), count);
    const auto done = transport.broadcast(group, 4, sent.data(), count * sizeof(T), static_cast<int>(root));
    if (!failures.ok(done, "broadcast")) return;
    failures.check(equal_bits(sent, values_of<T>(ranks[root], count)), "broadcast: wrong values of " + what);
  }
}

}  // namespace

TEST_CASE("slices cover a tensor without gaps", "[transport]") {
  for (size_t elements : {0, 1, 15, 16, 17, 1000}) {
    for (size_t count : {1, 2, 3, 7}) {
      size_t end = 0;
      for (size_t i = 0; i < count; i++) {
        const Slice slice = slice_of(elements, count, i);
        CHECK(slice.begin == end);
        end = slice.end;
      }
      CHECK(end == elements);
    }
  }
}

TEST_CASE("collectives sum in the order of the members, for all sizes", "[transport]") {
  const std::vector<int32_t> ranks = {0, 1, 2};
  on_all_transports(3, {ranks}, [&](Transport& transport, Failures& failures) {
    // Around the limit of the small algorithm, the size of a piece (512 KiB a slice), and odd.
    for (size_t count : {0, 1, 7, 1000, 16384, 16385, 100003, 131072, 400001}) {
      check_reductions<float>(transport, failures, 0, ranks, count);
    }
    for (size_t count : {1, 8192, 8193, 70001}) check_reductions<double>(transport, failures, 0, ranks, count);
  });
}

TEST_CASE("groups of one, of two, of some ranks and of all", "[transport]") {
  const std::vector<std::vector<int32_t>> groups = {{0}, {1}, {2}, {3}, {0, 2}, {1, 3}, {1, 2, 3}, {0, 1, 2, 3}};
  on_all_transports(4, groups, [&](Transport& transport, Failures& failures) {
    for (size_t g = 0; g < groups.size(); g++) {
      const auto& ranks = groups[g];
      if (std::find(ranks.begin(), ranks.end(), transport.rank()) == ranks.end()) continue;
      check_reductions<float>(transport, failures, static_cast<int>(g), ranks, 33);
      check_reductions<double>(transport, failures, static_cast<int>(g), ranks, 30011);
    }
  });
}

TEST_CASE("an all-to-all takes as much to each member as it says", "[transport]") {
  const std::vector<int32_t> ranks = {0, 2, 3};
  // Bytes from member i to member j: none, few, several pieces; nothing between some, nothing at all from the last.
  const size_t bytes[3][3] = {{5, 0, 1000003}, {64, 70001, 0}, {0, 0, 0}};
  const auto byte = [](size_t from, size_t to, size_t i) { return static_cast<unsigned char>(7 * from + 3 * to + i % 251); };
  on_all_transports(4, {ranks}, [&](Transport& transport, Failures& failures) {
    const auto it = std::find(ranks.begin(), ranks.end(), transport.rank());
    if (it == ranks.end()) return;
    const size_t me = static_cast<size_t>(it - ranks.begin());
    std::vector<unsigned char> data, expected;
    std::vector<size_t> sent, received;
    for (size_t j = 0; j < ranks.size(); j++) {
      sent.push_back(bytes[me][j]);
      received.push_back(bytes[j][me]);
      for (size_t i = 0; i < bytes[me][j]; i++) data.push_back(byte(me, j, i));
      for (size_t i = 0; i < bytes[j][me]; i++) expected.push_back(byte(j, me, i));
    }
    for (uint64_t tag = 0; tag < 3; tag++) {
      std::vector<unsigned char> out(expected.size(), 0);
      if (!failures.ok(transport.all_to_all(0, tag, data.data(), sent.data(), out.data(), received.data()), "all_to_all")) return;
      failures.check(out == expected, "all_to_all: wrong bytes on rank " + std::to_string(transport.rank()));
    }
  });
}

TEST_CASE("messages are matched by tag, whatever the order, also with 64-bit tags", "[transport]") {
  on_all_transports(2, {}, [](Transport& transport, Failures& failures) {
    // Every message has its own thread, as it has its own stream in the executor; receivers wait in other order.
    const std::vector<uint64_t> tags = {0, 1, 0xffffffffffffffffULL, 0x100000001ULL, 1ULL << 63, 77};
    const int peer = 1 - transport.rank();
    run_threads(static_cast<int>(tags.size()) * 2, [&](int i) {
      const size_t index = static_cast<size_t>(i) / 2;
      const uint64_t tag = i % 2 == 0 ? tags[index] : tags[tags.size() - 1 - index];
      const size_t bytes = tag % 1000 + 1;
      if (i % 2 == 0) {
        const std::vector<char> data(bytes, static_cast<char>(tag * 3 + static_cast<uint64_t>(transport.rank())));
        failures.ok(transport.send(peer, tag, data.data(), bytes), "send");
      } else {
        std::vector<char> data(bytes);
        if (!failures.ok(transport.recv(peer, tag, data.data(), bytes), "recv")) return;
        const std::vector<char> expected(bytes, static_cast<char>(tag * 3 + static_cast<uint64_t>(peer)));
        failures.check(data == expected, "wrong message for tag " + std::to_string(tag));
      }
    });
  });
}

TEST_CASE("messages of one tag keep their order", "[transport]") {
  on_all_transports(2, {}, [](Transport& transport, Failures& failures) {
    for (int i = 0; i < 200; i++) {
      int value = i;
      if (transport.rank() == 0) {
        if (!failures.ok(transport.send(1, 5, &value, sizeof(value)), "send")) return;
      } else {
        if (!failures.ok(transport.recv(0, 5, &value, sizeof(value)), "recv")) return;
        failures.check(value == i, "out of order");
      }
    }
  });
}

TEST_CASE("large and empty messages", "[transport]") {
  on_all_transports(2, {}, [](Transport& transport, Failures& failures) {
    const size_t count = (size_t{70} << 20) / sizeof(uint32_t) + 3;  // more than one part of Gloo's
    std::vector<uint32_t> data(count);
    if (transport.rank() == 0) {
      for (size_t i = 0; i < count; i++) data[i] = static_cast<uint32_t>(i * 2654435761U);
      failures.ok(transport.send(1, 9, data.data(), count * sizeof(uint32_t)), "send");
      failures.ok(transport.send(1, 10, nullptr, 0), "empty send");
    } else {
      if (!failures.ok(transport.recv(0, 9, data.data(), count * sizeof(uint32_t)), "recv")) return;
      failures.ok(transport.recv(0, 10, nullptr, 0), "empty recv");
      size_t wrong = 0;
      for (size_t i = 0; i < count; i++) wrong += data[i] != static_cast<uint32_t>(i * 2654435761U);
      failures.check(wrong == 0, std::to_string(wrong) + " wrong elements");
    }
  });
}

TEST_CASE("streams run collectives and messages side by side", "[transport]") {
  const std::vector<std::vector<int32_t>> groups = {{0, 1, 2, 3}, {0, 1}, {2, 3}, {0, 2}, {1, 3}};
  on_all_transports(4, groups, [&](Transport& transport, Failures& failures) {
    run_threads(4, [&](int stream) {
      for (int step = 0; step < 20; step++) {
        const size_t count = static_cast<size_t>(step) * 911 + 1;
        if (stream == 3) {  // a ring
          const int world = transport.world_size();
          const uint64_t tag = static_cast<uint64_t>(step);
          const std::vector<float> out = values_of<float>(transport.rank(), count);
          std::vector<float> in(count);
          const int next = (transport.rank() + 1) % world, previous = (transport.rank() + world - 1) % world;
          std::thread sender([&] { failures.ok(transport.send(next, tag, out.data(), count * 4), "send"); });
          failures.ok(transport.recv(previous, tag, in.data(), count * 4), "recv");
          sender.join();
          failures.check(equal_bits(in, values_of<float>(previous, count)), "ring: wrong values");
          continue;
        }
        // Streams 0 and 1 use one group at once, told apart by their tags.
        const size_t group = stream < 2 ? 0 : 1 + static_cast<size_t>(transport.rank() / 2);
        std::vector<float> data = values_of<float>(transport.rank(), count);
        const uint64_t tag = static_cast<uint64_t>(stream);
        const auto done = transport.all_reduce(static_cast<int>(group), tag, data.data(), count, DType::kF32);
        if (!failures.ok(done, "all_reduce")) return;
        failures.check(equal_bits(data, expected_sum<float>(groups[group], count)), "all_reduce: wrong sum");
      }
    });
  });
}

TEST_CASE("nobody leaves a barrier before everybody came", "[transport]") {
  for (const Kind& kind : kinds()) {
    Failures failures;
    Job job = kind.make(4, failures);
    std::atomic<int> arrived{0};
    run_threads(4, [&](int rank) {
      for (int round = 1; round <= 20; round++) {
        arrived++;
        if (!failures.ok(job[static_cast<size_t>(rank)]->barrier(), "barrier")) return;
        failures.check(arrived >= 4 * round, "left early");
        if (!failures.ok(job[static_cast<size_t>(rank)]->barrier(), "barrier")) return;
      }
    });
    INFO(kind.name);
    CHECK(failures.all() == "");
  }
}

TEST_CASE("abort on one rank ends every pending and later call of all ranks", "[transport]") {
  for (const Kind& kind : kinds()) {
    Failures failures;
    Job job = kind.make(4, failures);
    REQUIRE(!job.empty());
    for (auto& transport : job) failures.ok(transport->set_groups({{0, 1, 2, 3}}), "set_groups");
    std::atomic<int> failed{0};
    const auto start = std::chrono::steady_clock::now();
    run_threads(4, [&](int rank) {
      Transport& transport = *job[static_cast<size_t>(rank)];
      if (rank == 3) {
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
        transport.abort("disk on fire");
        failures.check(!transport.barrier(), "a call after abort went through");
        return;
      }
      // Rank 3 takes part in none of these. Rank 1 waits for rank 0, which only fails because the failure spreads.
      std::vector<char> big(1 << 20);
      run_threads(3, [&](int stream) {
        Expected<void> done;
        std::vector<float> data(100000);
        if (stream == 0) done = transport.all_reduce(0, 1, data.data(), data.size(), DType::kF32);
        if (stream == 1) done = transport.recv((rank + 2) % 3, 8, big.data(), big.size());
        if (stream == 2) done = transport.barrier();
        if (!done) failed++;
      });
      failures.check(!transport.send(3, 9, big.data(), big.size()), "a call after a failure went through");
    });
    INFO(kind.name);
    CHECK(failures.all() == "");
    CHECK(failed == 9);
    CHECK(Seconds(std::chrono::steady_clock::now() - start).count() < 3);
  }
}

TEST_CASE("a rank that aborts has the cause, the others lost a peer", "[transport]") {
  Failures failures;
  Job job = gloo_job(2, failures);
  REQUIRE(!job.empty());
  char byte = 0;
  run_threads(2, [&](int rank) {
    if (rank == 1) job[1]->abort("disk on fire");
    auto done = job[static_cast<size_t>(rank)]->recv(1 - rank, 1, &byte, 1);
    failures.check(!done, "went through");
    if (rank == 1) failures.check(done.error().message == "disk on fire", done.error().message);
  });
  CHECK(failures.all() == "");
  CHECK(dynamic_cast<GlooTransport&>(*job[0]).lost_peer());
  CHECK_FALSE(dynamic_cast<GlooTransport&>(*job[1]).lost_peer());
}

TEST_CASE("loopback: the hub knows who aborted first", "[transport]") {
  auto hub = LoopbackHub::make(2);
  auto a = hub->connect(0), b = hub->connect(1);
  CHECK_FALSE(hub->first_abort());
  b->abort("first");
  a->abort("second");
  REQUIRE(hub->first_abort());
  CHECK(hub->first_abort()->rank == 1);
  CHECK(hub->first_abort()->why == "first");
  CHECK(a->barrier().error().message == "job stopped by rank 1: first");
}

TEST_CASE("loopback: a rendezvous send waits for its receiver, a buffered one does not", "[transport]") {
  for (bool rendezvous : {false, true}) {
    auto hub = LoopbackHub::make(2, loopback(rendezvous, 0));
    auto sender = hub->connect(0), receiver = hub->connect(1);
    std::atomic<bool> sent{false};
    int in = 7, out = 0;
    std::thread thread([&] {
      sent = sender->send(1, 0, &in, sizeof(in)).has_value();
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    CHECK(sent == !rendezvous);
    CHECK(receiver->recv(0, 0, &out, sizeof(out)));
    thread.join();
    CHECK(sent);
    CHECK(out == 7);
  }
}

TEST_CASE("loopback: sizes that differ are an error of both sides", "[transport]") {
  auto hub = LoopbackHub::make(2, loopback(true, 0));
  auto sender = hub->connect(0), receiver = hub->connect(1);
  char data[8] = {};
  std::string sender_error;
  std::thread thread([&] { sender_error = sender->send(1, 3, data, 8).error().message; });
  auto done = receiver->recv(0, 3, data, 4);
  thread.join();
  REQUIRE_FALSE(done);
  CHECK(done.error().message.find("rank 1 expected 4 bytes from rank 0 (tag 3) and got 8") != std::string::npos);
  CHECK(sender_error == done.error().message);
}

}  // namespace piper::runtime
