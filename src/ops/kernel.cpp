#include "ops/kernel.h"

#include <map>

namespace piper::ops {

namespace {

const std::map<std::string_view, MakeKernel>& makers() {
  static const std::map<std::string_view, MakeKernel> table = {
#define PIPER_OP(name, folder) {#name, make_cpu_##name},
#include "ops/ops.def"
#undef PIPER_OP
  };
  return table;
}

}  // namespace

std::unique_ptr<Kernel> make_cpu_kernel(const KernelSpec& spec) {
  auto it = makers().find(spec.op);
  return it == makers().end() ? nullptr : it->second(spec);
}

bool has_cpu_kernel(std::string_view op) { return makers().count(op) > 0; }

}  // namespace piper::ops
