// A GPU by itself: what the stand-in says of one.

#include "worker/gpu/device/gpu.h"

#include "common/testing/status_matchers.h"
#include "tests/gpu/real_gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/registered_memory.h"

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr ByteCount kBytes(int64_t{16} << 20);

class RealGpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string lack = WhatLacks({}); !lack.empty()) GTEST_SKIP() << lack;
    ASSERT_OK_AND_ASSIGN(driver_, LoadDriver());
    ASSERT_OK_AND_ASSIGN(uuids_, Gpu::Uuids(*driver_));
    ASSERT_OK_AND_ASSIGN(gpu_, Gpu::Create(*driver_, uuids_.at(0)));
    ASSERT_OK_AND_ASSIGN(stream_, GpuStream::Create(*gpu_));
  }

  // Of what is on the stream.
  void AwaitByEvent() {
    ASSERT_OK_AND_ASSIGN(const auto end, GpuEvent::Create(*gpu_));
    ASSERT_OK(end->Record(*stream_));
    for (bool is_done = false; !is_done; std::this_thread::yield()) {
      ASSERT_OK_AND_ASSIGN(is_done, end->IsDone());
    }
  }

  std::unique_ptr<const DriverApi> driver_;
  std::vector<std::string> uuids_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuStream> stream_;
};

TEST_F(RealGpuTest, GpusAreToldByUuidAsByNvidiaSmi) {
  for (const std::string& uuid : uuids_) {
    EXPECT_EQ(uuid.size(), 40);
    EXPECT_THAT(uuid, MatchesRegex("GPU-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*-[0-9a-f]*"));
  }
  EXPECT_THAT(
      Gpu::Create(*driver_, "GPU-00000000-0000-0000-0000-000000000000"),
      StatusIs(absl::StatusCode::kNotFound, AllOf(HasSubstr("no GPU"), HasSubstr(uuids_[0]))));
}

TEST_F(RealGpuTest, MemoryIsFilledWithZeros) {
  ASSERT_OK_AND_ASSIGN(const auto memory,
                       GpuMemory::Create(*gpu_, kBytes, {.zeroed_on = stream_.get()}));
  ASSERT_OK_AND_ASSIGN(const auto bytes, RegisteredMemory::Create(*gpu_, kBytes));
  std::ranges::fill(bytes->bytes(), std::byte{1});
  ASSERT_OK(bytes->CopyFromGpu(memory->address(), bytes->bytes(), *stream_));
  AwaitByEvent();
  EXPECT_EQ(std::ranges::count(bytes->bytes(), std::byte{0}), kBytes.value());
}

TEST_F(RealGpuTest, TooMuchMemoryIsRefusedWithWhatIsFree) {
  ASSERT_OK_AND_ASSIGN(const Gpu::MemoryAmounts amounts, gpu_->Memory());
  EXPECT_THAT(
      GpuMemory::Create(*gpu_, amounts.total + kBytes, {}),
      StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("CUDA_ERROR_OUT_OF_MEMORY")));
  EXPECT_OK(gpu_->health());
  EXPECT_OK(GpuMemory::Create(*gpu_, kBytes, {}));
}

TEST_F(RealGpuTest, AnImportedDescriptorIsTheSameMemory) {
  ASSERT_OK_AND_ASSIGN(auto memory, GpuMemory::Create(*gpu_, kBytes, {}));
  ASSERT_OK_AND_ASSIGN(const UniqueFd descriptor, memory->ExportFd());
  ASSERT_OK_AND_ASSIGN(const auto bytes, RegisteredMemory::Create(*gpu_, kBytes));
  std::ranges::fill(bytes->bytes(), std::byte{7});
  ASSERT_OK(bytes->CopyToGpu(bytes->bytes(), memory->address(), *stream_));
  AwaitByEvent();
  memory.reset();
  ASSERT_OK_AND_ASSIGN(const auto imported, GpuMemory::Import(*gpu_, descriptor.get(), kBytes));
  std::ranges::fill(bytes->bytes(), std::byte{0});
  ASSERT_OK(bytes->CopyFromGpu(imported->address(), bytes->bytes(), *stream_));
  AwaitByEvent();
  EXPECT_EQ(std::ranges::count(bytes->bytes(), std::byte{7}), kBytes.value());
}

}  // namespace
}  // namespace crossmesh
