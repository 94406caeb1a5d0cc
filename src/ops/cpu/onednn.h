// What kernels that use oneDNN share. oneDNN's headers stay in the .cpp files that include this
// one.
#pragma once

#include <dnnl.hpp>

namespace piper::ops {

inline const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

}  // namespace piper::ops
