#pragma once

#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_stream.h"

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

// The address as the stand-in has it: memory of this process, which a test reads and writes while
// no queued work does.
template <typename T>
T* AtAddress(uint64_t address) {
  return reinterpret_cast<T*>(address);
}

// The first of two GPUs of the stand-in, with a stream. A violation that the test does not ask for
// fails it, as does what is left on the GPU.
class GpuTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    setenv("CROSSMESH_STANDIN_DEVICES", "2", 1);
    setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
  }

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(stand_in_, StandIn::Load());
    ASSERT_OK_AND_ASSIGN(uuids_, Gpu::Uuids(driver()));
    ASSERT_OK_AND_ASSIGN(gpu_, Gpu::Create(driver(), uuids_.at(0)));
    ASSERT_OK_AND_ASSIGN(stream_, GpuStream::Create(*gpu_));
  }

  void TearDown() override {
    stream_.reset();
    gpu_.reset();
    if (stand_in_ == nullptr) return;
    EXPECT_OK(stand_in_->SetFaults(""));
    EXPECT_THAT(stand_in_->Violations(), ::testing::ElementsAreArray(expected_violations_));
  }

  const DriverApi& driver() const { return stand_in_->driver(); }

  // Asks until what is queued on the stream has been done.
  void Finish(const GpuStream& stream) {
    ASSERT_OK_AND_ASSIGN(const auto end, GpuEvent::Create(*gpu_));
    ASSERT_OK(end->Record(stream));
    while (true) {
      ASSERT_OK_AND_ASSIGN(const bool is_done, end->IsDone());
      if (is_done) return;
      std::this_thread::yield();
    }
  }
  void Finish() { Finish(*stream_); }

  int64_t FreeBytes() {
    const absl::StatusOr<Gpu::MemoryAmounts> amounts = gpu_->Memory();
    EXPECT_OK(amounts);
    return amounts.ok() ? amounts->free.value() : 0;
  }

  std::unique_ptr<StandIn> stand_in_;
  std::vector<std::string> uuids_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::vector<::testing::Matcher<std::string>> expected_violations_;
};

}  // namespace crossmesh
