# Kernel-side files that are not <folder>_cpu.cpp, relative to src/ops, sorted.
set(shared_kernel_sources
  cpu/column_sums.cpp
  cpu/gemm.cpp
  cpu/strided.cpp
  cpu/vector_math.cpp
  update_cpu.cpp)
