#pragma once

#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <gtest/gtest.h>

namespace crossmesh {

// One launch of a kernel in a test.
struct KernelLaunch {
  absl::string_view kernel;  // as in Kernels()
  int64_t blocks = 0;        // of threads, at least 1
  std::variant<PackArguments, CopyArguments, ReduceArguments, ScaleArguments> arguments;
  // All that the arguments and their boxes point to, but for these lists. No two overlap.
  std::vector<std::span<std::byte>> memory;
};

// A list as memory of an execution.
inline std::span<std::byte> BytesOf(std::vector<uint64_t>& list) {
  return std::as_writable_bytes(std::span(list));
}

// Runs kernels on memory of this process, which it brings to where they run.
class KernelRunner {
 public:
  virtual ~KernelRunner() = default;

  // Afterwards the memory is as the kernel has left it.
  virtual absl::Status Run(const KernelLaunch& run) = 0;
};

// On this thread: the kernels' own code, compiled for the host.
std::unique_ptr<KernelRunner> MakeHostKernelRunner();

// What kernel_conformance.h needs.
struct KernelsUnderTest {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<KernelRunner>>()> make_runner;
  // Why there is nothing to run them on, in a line; "" when there is.
  std::function<std::string()> lack = [] { return std::string(); };

  static std::string Name(const testing::TestParamInfo<KernelsUnderTest>& info) {
    return info.param.name;
  }
  friend void PrintTo(const KernelsUnderTest& under_test, std::ostream* out) {
    *out << under_test.name;
  }
};

}  // namespace crossmesh
