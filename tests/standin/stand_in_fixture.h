#pragma once

#include "common/testing/status_matchers.h"
#include "tests/standin/stand_in.h"
#include "tests/standin/stand_in_gpu.h"

#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {

// Has the stand-ins loaded and a device at hand. A violation that the test does not take fails it.
class StandInTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { setenv("CROSSMESH_STANDIN_DEVICES", "2", 1); }

  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(stand_in_, StandIn::Load());
    ASSERT_OK_AND_ASSIGN(gpu_, StandInGpu::Create(*stand_in_));
  }

  void TearDown() override {
    gpu_.reset();
    if (stand_in_ == nullptr) return;
    EXPECT_OK(stand_in_->SetFaults(""));
    EXPECT_THAT(TakeViolations(), ::testing::IsEmpty());
  }

  // Those since the last time.
  std::vector<std::string> TakeViolations() {
    std::vector<std::string> all = stand_in_->Violations();
    std::vector<std::string> taken(all.begin() + static_cast<ptrdiff_t>(taken_), all.end());
    taken_ = all.size();
    return taken;
  }

  const DriverApi& driver() const { return stand_in_->driver(); }
  const NcclApi& nccl() const { return stand_in_->nccl(); }
  template <typename R>
  absl::Status Check(R result) const {
    return stand_in_->Check(result, "");
  }

  // Memory by address range.
  static constexpr size_t kMappedBytes = 2 << 20;
  struct MappedMemory {
    CUmemGenericAllocationHandle handle = 0;
    CUdeviceptr address = 0;
  };
  CUresult CreateMemory(CUmemGenericAllocationHandle& handle, size_t bytes,
                        bool is_shareable = true) const {
    const CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes =
            is_shareable ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    return driver().cuMemCreate(&handle, bytes, &properties, 0);
  }
  // Mapped, and not accessible yet.
  MappedMemory MapMemory(bool is_shareable = true) const {
    MappedMemory memory;
    EXPECT_OK(Check(CreateMemory(memory.handle, kMappedBytes, is_shareable)));
    EXPECT_OK(Check(driver().cuMemAddressReserve(&memory.address, kMappedBytes, 0, 0, 0)));
    EXPECT_OK(Check(driver().cuMemMap(memory.address, kMappedBytes, 0, memory.handle, 0)));
    return memory;
  }
  CUresult SetAccess(CUdeviceptr address) const {
    const CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return driver().cuMemSetAccess(address, kMappedBytes, &access, 1);
  }
  void Unmap(const MappedMemory& memory) const {
    EXPECT_OK(Check(driver().cuMemUnmap(memory.address, kMappedBytes)));
    EXPECT_OK(Check(driver().cuMemAddressFree(memory.address, kMappedBytes)));
    EXPECT_OK(Check(driver().cuMemRelease(memory.handle)));
  }

  std::unique_ptr<StandIn> stand_in_;
  std::unique_ptr<StandInGpu> gpu_;

 private:
  size_t taken_ = 0;
};

// The call is refused with the text, which is in the error and in the report.
#define EXPECT_VIOLATION(call, text)                                                   \
  do {                                                                                 \
    const absl::Status status_of_call = Check(call);                                   \
    EXPECT_FALSE(status_of_call.ok());                                                 \
    EXPECT_THAT(std::string(status_of_call.message()),                                 \
                ::testing::HasSubstr("Crossmesh stand-in"));                           \
    EXPECT_THAT(std::string(status_of_call.message()), ::testing::HasSubstr(text));    \
    EXPECT_THAT(TakeViolations(), ::testing::ElementsAre(::testing::HasSubstr(text))); \
  } while (false)

}  // namespace crossmesh
