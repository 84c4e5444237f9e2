#include "worker/gpu/device/registered_memory.h"

#include "common/base/unique_fd.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/testing/gpu_fixture.h"

#include <algorithm>
#include <span>

#include <sys/mman.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using RegisteredMemoryTest = GpuTest;

TEST_F(RegisteredMemoryTest, IsZeroFilledAndPinnedUntilItGoes) {
  ASSERT_OK_AND_ASSIGN(auto memory, RegisteredMemory::Create(*gpu_, ByteCount(5000)));
  ASSERT_EQ(memory->bytes().size(), 5000);
  EXPECT_EQ(std::ranges::count(memory->bytes(), std::byte{0}), 5000);
  EXPECT_NE(memory->device_address(), 0);
  void* const pages = memory->bytes().data();
  memory.reset();
  EXPECT_NE(driver().cuMemHostUnregister(pages), CUDA_SUCCESS);
  expected_violations_ = {HasSubstr("no range begins there")};
}

TEST_F(RegisteredMemoryTest, IsCopiedToTheGpuAndBack) {
  ASSERT_OK_AND_ASSIGN(const auto on_gpu, GpuMemory::Create(*gpu_, ByteCount(100), {}));
  ASSERT_OK_AND_ASSIGN(const auto memory, RegisteredMemory::Create(*gpu_, ByteCount(100)));
  const std::span<std::byte> from = memory->bytes().first(10);
  const std::span<std::byte> to = memory->bytes().subspan(50, 10);
  std::ranges::fill(from, std::byte{42});
  EXPECT_OK(memory->CopyToGpu(from, on_gpu->address() + 7, *stream_));
  EXPECT_OK(memory->CopyFromGpu(on_gpu->address() + 7, to, *stream_));
  Finish();
  EXPECT_EQ(std::ranges::count(to, std::byte{42}), 10);
  EXPECT_EQ(std::ranges::count(memory->bytes(), std::byte{42}), 20);
}

TEST_F(RegisteredMemoryTest, IsMemoryThatAnotherHasMapped) {
  constexpr int64_t kPage = 4096;
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 3 * kPage), 0);
  ASSERT_OK_AND_ASSIGN(const auto on_gpu, GpuMemory::Create(*gpu_, ByteCount(1), {}));
  ASSERT_OK_AND_ASSIGN(const auto memory,
                       RegisteredMemory::Map(*gpu_, file.get(), kPage, ByteCount(kPage + 100)));
  const auto byte = [&](int64_t at) { return memory->bytes().subspan(at, 1); };
  byte(0)[0] = std::byte{42};
  EXPECT_OK(memory->CopyToGpu(byte(0), on_gpu->address(), *stream_));
  EXPECT_OK(memory->CopyFromGpu(on_gpu->address(), byte(kPage + 99), *stream_));
  Finish();
  char found = 0;
  ASSERT_EQ(pread(file.get(), &found, 1, kPage + kPage + 99), 1);
  EXPECT_EQ(found, 42);
}

TEST_F(RegisteredMemoryTest, BytesBeyondTheEndOfAFileAreRefused) {
  const UniqueFd file(memfd_create("test", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(file.get(), 5000), 0);
  EXPECT_THAT(RegisteredMemory::Map(*gpu_, file.get(), 4096, ByteCount(905)),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("expected a file with 905 bytes from 4096 on, found 5000")));
  EXPECT_OK(RegisteredMemory::Map(*gpu_, file.get(), 4096, ByteCount(904)));
  EXPECT_THAT(RegisteredMemory::Map(*gpu_, -1, 0, ByteCount(1)),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(RegisteredMemoryTest, MayBeEmpty) {
  ASSERT_OK_AND_ASSIGN(const auto memory, RegisteredMemory::Create(*gpu_, ByteCount(0)));
  EXPECT_TRUE(memory->bytes().empty());
}

TEST_F(RegisteredMemoryTest, TooMuchIsRefusedWithTheSize) {
  EXPECT_THAT(RegisteredMemory::Create(*gpu_, ByteCount(int64_t{1} << 60)),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("1152921504606846976 bytes of host memory"),
                             HasSubstr(uuids_[0]), HasSubstr("mmap"))));
}

}  // namespace
}  // namespace crossmesh
