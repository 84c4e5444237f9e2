#include "worker/memory/device_memory.h"

#include "common/base/byte_count.h"
#include "common/testing/status_matchers.h"
#include "worker/memory/arena.h"

#include <cstddef>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/eventfd.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(DeviceMemoryTest, WaitersAreToldWhenItIsMadeAndLaterOnesAtOnce) {
  DeviceMemory memory("GPU-1");
  std::vector<int> told;
  memory.WhenMade([&](const DeviceMemory::Made& made) { told.push_back(made->get()); });
  EXPECT_THAT(told, ElementsAre());
  EXPECT_THAT(memory.is_made(), IsOkAndHolds(false));
  UniqueFd descriptor(eventfd(0, EFD_CLOEXEC));
  const int number = descriptor.get();
  memory.Finish(std::move(descriptor));
  memory.WhenMade([&](const DeviceMemory::Made& made) { told.push_back(made->get()); });
  EXPECT_THAT(told, ElementsAre(number, number));
  EXPECT_THAT(memory.is_made(), IsOkAndHolds(true));
}

TEST(DeviceMemoryTest, WaitersAreToldWhyItCouldNotBeMade) {
  DeviceMemory memory("GPU-1");
  absl::Status told;
  memory.WhenMade([&](const DeviceMemory::Made& made) { told = made.status(); });
  memory.Finish(absl::ResourceExhaustedError("full"));
  EXPECT_THAT(told, StatusIs(absl::StatusCode::kResourceExhausted, "full"));
  EXPECT_THAT(memory.is_made(), StatusIs(absl::StatusCode::kResourceExhausted, "full"));
}

TEST(DeviceMemoryTest, AnArenaStandsForItThatCannotBeTouched) {
  auto memory = std::make_shared<DeviceMemory>("GPU-1");
  ASSERT_OK_AND_ASSIGN(const auto arena, Arena::Reserve("weights", ByteCount(100), memory));
  EXPECT_EQ(arena->bytes().size(), 100);
  EXPECT_EQ(arena->fd(), -1);
  EXPECT_OK(arena->status());
  EXPECT_DEATH(static_cast<volatile std::byte*>(arena->bytes().data())[0] = std::byte{1}, "");
  memory->Finish(absl::UnavailableError("the GPU is gone"));
  EXPECT_THAT(arena->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is gone")));
}

}  // namespace
}  // namespace crossmesh
