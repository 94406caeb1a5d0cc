#include "tests/plan/random_plan.h"

#include <bit>
#include <cmath>
#include <random>

namespace piper::testing {

namespace {

using namespace plan;  // NOLINT: a test helper that is all about plans

// One overload a type; structs are taken apart by structured bindings, so that a new field does not compile until it is
// filled here.
class Filler {
 public:
  explicit Filler(uint64_t seed) : rng_(seed) {}

  void fill(int64_t& v) { v = static_cast<int64_t>(rng_() >> (rng_() % 64)) * (rng_() % 2 == 0 ? 1 : -1); }
  void fill(int32_t& v) { v = static_cast<int32_t>(rng_() >> (rng_() % 32)); }
  void fill(uint64_t& v) { v = rng_(); }
  void fill(bool& v) { v = rng_() % 2 == 0; }
  // Any bits but NaNs, which do not equal themselves.
  void fill(double& v) {
    do {
      v = std::bit_cast<double>(rng_());
    } while (std::isnan(v));
  }
  // Any bytes: names need not be UTF-8.
  void fill(std::string& v) {
    v.resize(rng_() % 12);
    for (char& c : v) c = static_cast<char>(rng_());
  }
  void fill(std::byte& v) { v = static_cast<std::byte>(rng_()); }

  void fill(DType& v) { v = static_cast<DType>(rng_() % 7); }
  void fill(Access& v) { v = static_cast<Access>(1 + rng_() % 3); }
  void fill(BufferKind& v) { v = static_cast<BufferKind>(rng_() % 9); }
  void fill(Opcode& v) { v = static_cast<Opcode>(rng_() % 13); }
  void fill(StreamKind& v) { v = static_cast<StreamKind>(rng_() % 5); }
  void fill(InitKind& v) { v = static_cast<InitKind>(rng_() % 4); }
  void fill(OptimizerKind& v) { v = static_cast<OptimizerKind>(rng_() % 3); }
  void fill(ScheduleKind& v) { v = static_cast<ScheduleKind>(rng_() % 3); }

  template <class T>
  void fill(std::vector<T>& v) {
    v.resize(rng_() % 4);
    for (T& element : v) fill(element);
  }
  template <class A, class B>
  void fill(std::pair<A, B>& v) {
    all(v.first, v.second);
  }
  void fill(ir::Dim& v) { all(v.constant, v.batch); }

  template <class T>
  void fill_attr(ir::Attrs& attrs) {
    T value{};
    std::string name;
    all(value, name);
    attrs.set(name, std::move(value));
  }
  void fill(ir::Attrs& v) {
    fill_attr<int64_t>(v);
    fill_attr<double>(v);
    fill_attr<std::string>(v);
    fill_attr<std::vector<int64_t>>(v);
    fill_attr<std::vector<double>>(v);
    fill_attr<ir::Shape>(v);
  }

  void fill(Operand& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(KernelCall& x) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  void fill(Slot& x) { auto& [a, b] = x; all(a, b); }
  void fill(KernelList& x) { auto& [a, b, c] = x; all(a, b, c); }
  void fill(Chunk& x) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  void fill(Buffer& x) { auto& [a, b, c, d, e, f] = x; all(a, b, c, d, e, f); }
  void fill(BufferRange& x) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  void fill(Stream& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(Instruction& x) {
    auto& [a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t] = x;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t);
  }
  void fill(ParamHome& x) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  void fill(Program& x) { auto& [a, b, c, d, e, f, g, h] = x; all(a, b, c, d, e, f, g, h); }
  void fill(Share& x) { auto& [a, b] = x; all(a, b); }
  void fill(Piece& x) { auto& [a, b] = x; all(a, b); }
  void fill(Segment& x) { auto& [a, b] = x; all(a, b); }
  void fill(RankEntry& x) { auto& [a, b, c, d, e, f, g] = x; all(a, b, c, d, e, f, g); }
  void fill(Group& x) { auto& [a, b] = x; all(a, b); }
  void fill(Param& x) { auto& [a, b, c, d, e, f, g, h, i, j, k] = x; all(a, b, c, d, e, f, g, h, i, j, k); }
  void fill(ConstantData& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(Input& x) { auto& [a, b, c, d, e, f, g] = x; all(a, b, c, d, e, f, g); }
  void fill(LossTerm& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(OptimizerConfig& x) { auto& [a, b, c, d, e, f, g, h] = x; all(a, b, c, d, e, f, g, h); }
  void fill(LrScheduleConfig& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(UpdateRun& x) { auto& [a, b, c, d] = x; all(a, b, c, d); }
  void fill(Update& x) { auto& [a, b, c] = x; all(a, b, c); }
  void fill(Contribution& x) { auto& [a, b] = x; all(a, b); }
  void fill(Contract& x) { auto& [a, b, c, d, e] = x; all(a, b, c, d, e); }
  void fill(MeshAxis& x) { auto& [a, b] = x; all(a, b); }
  void fill(Plan& x) {
    auto& [version, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, contract] = x;
    version = kFormatVersion;
    all(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, y, z, contract);
  }

  template <class... Ts>
  void all(Ts&... values) {
    (fill(values), ...);
  }

 private:
  std::mt19937_64 rng_;
};

}  // namespace

Plan random_plan(uint64_t seed) {
  Plan plan;
  Filler(seed).fill(plan);
  return plan;
}

}  // namespace piper::testing
