// What communicator_conformance.h needs of an implementation.

#pragma once

#include "common/base/status_macros.h"
#include "worker/gpu/communicators/communicator.h"

#include <cstddef>
#include <functional>
#include <ostream>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <gtest/gtest.h>

namespace crossmesh {

// A rank in a test: a communicator that is idle, a stream, and memory that the test can read and
// write while no queued work does. Confined to its thread.
class RankUnderTest {
 public:
  virtual ~RankUnderTest() = default;

  virtual Communicator& communicator() = 0;
  virtual CUstream stream() = 0;
  // Zeroed, for as long as this lives.
  virtual absl::StatusOr<std::span<std::byte>> Allocate(size_t bytes) = 0;
  // Waits for what is on the stream.
  virtual absl::Status Synchronize() = 0;

  // Waits until the call that is in progress has been done.
  absl::Status Await() {
    while (true) {
      ASSIGN_OR_RETURN(const Communicator::Progress progress, communicator().Poll());
      if (progress == Communicator::Progress::kIdle) return Synchronize();
      std::this_thread::yield();
    }
  }
};

// Runs `body` for each rank of a communicator, all at a time, and gives what each returned: "" for
// OK, else the status's text.
using RunRanksUnderTest = std::function<std::vector<std::string>(
    int size, absl::FunctionRef<absl::Status(RankUnderTest&)> body)>;

struct CommunicatorUnderTest {
  std::string name;
  int size = 1;
  RunRanksUnderTest run;
  // Why there is nothing to run it on, in a line; "" when there is.
  std::function<std::string()> lack = [] { return std::string(); };

  static std::string Name(const testing::TestParamInfo<CommunicatorUnderTest>& info) {
    return info.param.name;
  }
  friend void PrintTo(const CommunicatorUnderTest& under_test, std::ostream* out) {
    *out << under_test.name;
  }
};

inline CUdeviceptr AddressOf(std::span<const std::byte> memory) {
  return reinterpret_cast<CUdeviceptr>(memory.data());
}

}  // namespace crossmesh
