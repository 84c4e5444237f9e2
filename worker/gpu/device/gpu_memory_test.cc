#include "worker/gpu/device/gpu_memory.h"

#include "tests/standin/plain_memory.h"
#include "worker/gpu/device/testing/gpu_fixture.h"

#include <algorithm>
#include <cstring>

#include <absl/strings/str_cat.h>
#include <sys/mman.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kGranule = 2 << 20;

class GpuMemoryTest : public GpuTest {
 protected:
  absl::StatusOr<std::unique_ptr<GpuMemory>> Create(int64_t bytes) {
    return GpuMemory::Create(*gpu_, ByteCount(bytes), {});
  }
};

TEST_F(GpuMemoryTest, IsWholeGranulesUntilItGoes) {
  const int64_t free = FreeBytes();
  ASSERT_OK_AND_ASSIGN(auto memory, Create(kGranule + 1));
  EXPECT_EQ(memory->bytes(), ByteCount(kGranule + 1));
  EXPECT_EQ(memory->address() % kGranule, 0);
  EXPECT_EQ(FreeBytes(), free - 2 * kGranule);
  std::memset(AtAddress<char>(memory->address()), 7, 2 * kGranule);
  memory.reset();
  EXPECT_EQ(FreeBytes(), free);
}

TEST_F(GpuMemoryTest, MayBeEmpty) {
  ASSERT_OK_AND_ASSIGN(const auto memory, Create(0));
  EXPECT_EQ(memory->bytes(), ByteCount(0));
}

TEST_F(GpuMemoryTest, ZerosAreFilledInInTheStreamThatIsNamed) {
  ASSERT_OK_AND_ASSIGN(const auto memory,
                       GpuMemory::Create(*gpu_, ByteCount(kGranule), {.zeroed_on = stream_.get()}));
  Finish();
  const auto fills = [](const StandInCall& call) {
    return absl::string_view(call.name) == "cuMemsetD8Async" && call.bytes == kGranule;
  };
  EXPECT_EQ(std::ranges::count_if(stand_in_->Calls(), fills), 1);
  const auto* const bytes = AtAddress<char>(memory->address());
  EXPECT_EQ(std::count(bytes, bytes + kGranule, 0), kGranule);
}

TEST_F(GpuMemoryTest, TooMuchIsRefusedWithWhatIsFree) {
  ASSERT_OK_AND_ASSIGN(const auto some, Create(kGranule));
  EXPECT_THAT(Create(int64_t{1} << 40),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(StartsWith(uuids_[0]), HasSubstr("CUDA_ERROR_OUT_OF_MEMORY"),
                             HasSubstr("expected 1099511627776 bytes"),
                             HasSubstr(absl::StrCat(FreeBytes(), " of 1073741824 are free")))));
}

TEST_F(GpuMemoryTest, AnAllocationThatFailsLeavesNothing) {
  const int64_t free = FreeBytes();
  ASSERT_OK(stand_in_->SetFaults("out_of_memory_at=1"));
  EXPECT_THAT(Create(kGranule), StatusIs(absl::StatusCode::kResourceExhausted));
  EXPECT_EQ(FreeBytes(), free);
  EXPECT_OK(Create(kGranule));
  EXPECT_OK(gpu_->health());
}

TEST_F(GpuMemoryTest, WhatWasImportedCanBeExportedAgain) {
  ASSERT_OK_AND_ASSIGN(const auto memory, Create(100));
  ASSERT_OK_AND_ASSIGN(UniqueFd fd, memory->ExportFd());
  ASSERT_OK_AND_ASSIGN(const auto imported, GpuMemory::Import(*gpu_, fd.get(), ByteCount(100)));
  ASSERT_OK_AND_ASSIGN(fd, imported->ExportFd());
  EXPECT_OK(GpuMemory::Import(*gpu_, fd.get(), ByteCount(100)));
}

TEST_F(GpuMemoryTest, ADescriptorOfLessMemoryIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto memory, Create(kGranule));
  ASSERT_OK_AND_ASSIGN(const UniqueFd fd, memory->ExportFd());
  EXPECT_THAT(
      GpuMemory::Import(*gpu_, fd.get(), ByteCount(kGranule + 1)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr("is not for 2097153 bytes of GPU memory"), HasSubstr("cuMemMap"))));
  expected_violations_ = {HasSubstr("of a handle of 2097152 bytes")};
}

TEST_F(GpuMemoryTest, ADescriptorOfSomethingElseIsRefused) {
  const UniqueFd other(memfd_create("other", MFD_CLOEXEC));
  EXPECT_THAT(
      GpuMemory::Import(*gpu_, other.get(), ByteCount(100)),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(absl::StrCat("descriptor ", other.get(), " is not for 100 bytes")),
                     HasSubstr("cuMemImportFromShareableHandle"))));
  expected_violations_ = {HasSubstr("is no exported memory")};
}

// Another process opens one in tests of worker/gpu/devices.
TEST_F(GpuMemoryTest, AHandleThatTheDriverRefusesIsRefused) {
  const auto open = [&](const std::string& handle) {
    return GpuMemory::Open(*gpu_, handle, ByteCount(100));
  };
  EXPECT_THAT(open("short"), StatusIs(absl::StatusCode::kInvalidArgument,
                                      HasSubstr("expected 64 bytes, found 5")));
  EXPECT_THAT(open(std::string(64, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("the IPC handle is not for 100 bytes of GPU memory"),
                             HasSubstr("cuIpcOpenMemHandle"))));
  ASSERT_OK_AND_ASSIGN(auto own, PlainMemory::Create(*stand_in_, 100));
  EXPECT_THAT(open(own->ipc_handle()), StatusIs(absl::StatusCode::kInvalidArgument,
                                                HasSubstr("CUDA_ERROR_INVALID_CONTEXT")));
  EXPECT_OK(gpu_->health());
  expected_violations_ = {HasSubstr("are no handle"), HasSubstr("of this very process")};
}

}  // namespace
}  // namespace crossmesh
