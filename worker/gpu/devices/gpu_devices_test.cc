#include "worker/gpu/devices/gpu_devices.h"

#include "common/testing/send_signal.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "worker/gpu/devices/testing/stand_in_gpus.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/time/clock.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class GpuDevicesTest : public testing::Test {
 protected:
  void TearDown() override {
    gpus_.Stop();
    EXPECT_EQ(gpus_.Violations(), "");
  }
  static StorageKey KeyOf(const std::string& device) {
    return {.name = "weights", .device = *ParseDevice(device)};
  }

  StandInGpus gpus_{{"a.4", "a.5"}};
};

TEST_F(GpuDevicesTest, DevicesAndGpusAreThereOnce) {
  const std::vector<GpuName> good = gpus_.options.gpus;
  gpus_.options.gpus[1].device = good[0].device;
  EXPECT_THAT(gpus_.Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("device a.4: expected one GPU")));
  gpus_.options.gpus = good;
  gpus_.options.gpus[1].gpu = good[0].gpu;
  EXPECT_THAT(gpus_.Open(), StatusIs(absl::StatusCode::kInvalidArgument,
                                     HasSubstr("expected one device, found a.5 as well")));
}

TEST_F(GpuDevicesTest, EveryGpuIsUpWhenTheyAreOpen) {
  ASSERT_OK(gpus_.Open());
  const std::vector<GpuDevices::Driver> drivers = gpus_.devices().drivers();
  ASSERT_THAT(drivers, SizeIs(2));
  EXPECT_EQ(drivers[1].device, *ParseDevice("a.5"));
  EXPECT_EQ(drivers[1].rank, gpus_["a.5"].rank());
  EXPECT_NE(drivers[1].rank.incarnation, 0);
  EXPECT_THAT(gpus_.devices().FindRank(drivers[1].rank), IsOkAndHolds(&gpus_["a.5"]));
  EXPECT_THAT(gpus_.devices().FindRank({.gpu = "GPU-other", .incarnation = 1}),
              StatusIs(absl::StatusCode::kNotFound));
}

TEST_F(GpuDevicesTest, SharesOfAGpuAreUpSideBySide) {
  const std::string uuid = gpus_.options.gpus[0].gpu;
  gpus_.options.gpus[0].gpu = uuid + ":0";
  gpus_.options.gpus[1].gpu = uuid + ":1";
  ASSERT_OK(gpus_.Open());
  EXPECT_EQ(gpus_["a.4"].rank().gpu, uuid + ":0");
  EXPECT_EQ(gpus_["a.5"].rank().gpu, uuid + ":1");
  // What a user process maps is memory of the GPU.
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> arena, gpus_.MakeArena("a.5", 5));
  EXPECT_EQ(arena->device_memory()->gpu(), uuid);
}

TEST_F(GpuDevicesTest, MemorySurvivesTheProcessAndOthersHearOfTheNextOne) {
  ASSERT_OK(gpus_.Open());
  GpuDevice& gpu = gpus_["a.4"];
  const RankName before = gpu.rank();
  int changes = 0;
  gpus_.devices().SetOnChange([&] { ++changes; });
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> arena, gpus_.MakeArena("a.4", 5));
  StandInGpus::Write(*arena, "bytes");
  SendSignal(gpu.process().pid(), SIGKILL);
  gpus_.RunUntil([&] { return gpu.state() == GpuDevice::State::kDown; });
  EXPECT_THAT(gpus_.devices().MakeArena(KeyOf("a.4"), ByteCount(5)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("is not up")));
  EXPECT_THAT(gpus_.devices().FindRank(before), StatusIs(absl::StatusCode::kUnavailable));
  gpus_.RunUntil([&] { return gpu.state() == GpuDevice::State::kUp; });
  EXPECT_EQ(changes, 2);
  EXPECT_NE(gpu.rank(), before);
  EXPECT_THAT(gpus_.devices().FindRank(before),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(gpu.rank().ToString())));
  EXPECT_EQ(StandInGpus::Read(*arena), "bytes");
}

TEST_F(GpuDevicesTest, MemoryThatAResetTookIsToldAsLostAndCanBeMadeAgain) {
  const TemporaryFolder system;
  gpus_.options.process.environment.push_back(
      absl::StrCat("CROSSMESH_STANDIN_NO_PERSISTENCE=", system.path()));
  ASSERT_OK(gpus_.Open());
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> arena, gpus_.MakeArena("a.4", 5));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> other, gpus_.MakeArena("a.5", 5));
  std::ofstream(system.PathOf("lives0"), std::ios::app) << '.';
  SendSignal(gpus_["a.4"].process().pid(), SIGKILL);
  gpus_.AwaitReplacement(gpus_["a.4"]);
  EXPECT_THAT(arena->device_memory()->loss(),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("was reset")));
  EXPECT_OK(other->status());
  EXPECT_OK(gpus_.MakeArena("a.4", 5));
}

TEST_F(GpuDevicesTest, AnArenaGoesWithItsLastHand) {
  gpus_.options.process.environment.push_back("CROSSMESH_STANDIN_MEMORY_MIB=64");
  ASSERT_OK(gpus_.Open());
  for (int i = 0; i < 8; ++i) {
    EXPECT_OK(gpus_.MakeArena("a.4", 40 << 20)) << i;
  }
}

TEST_F(GpuDevicesTest, MemoryThatCannotBeMadeSaysWhy) {
  ASSERT_OK(gpus_.Open());
  EXPECT_THAT(gpus_.MakeArena("a.4", int64_t{1} << 40),
              StatusIs(absl::StatusCode::kResourceExhausted,
                       AllOf(HasSubstr(StandInUuid(0)), HasSubstr("are free"))));
  EXPECT_OK(gpus_.MakeArena("a.4", 100));
}

TEST_F(GpuDevicesTest, AddressesTellWhereTilesLie) {
  ASSERT_OK(gpus_.Open());
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> first, gpus_.MakeArena("a.4", 100));
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> second, gpus_.MakeArena("a.4", 100));
  const StorageArenas& arenas = gpus_["a.4"].arenas();
  ASSERT_OK_AND_ASSIGN(const auto in_first, arenas.Find(first->bytes().data() + 64));
  ASSERT_OK_AND_ASSIGN(const auto in_second, arenas.Find(second->bytes().data()));
  EXPECT_EQ(in_first.place.offset, 64);
  EXPECT_EQ(in_first.bytes, ByteCount(100));
  EXPECT_EQ(in_second.place.offset, 0);
  EXPECT_NE(in_first.place.arena, in_second.place.arena);
  EXPECT_THAT(arenas.Find(reinterpret_cast<const std::byte*>(&arenas)),
              StatusIs(absl::StatusCode::kFailedPrecondition));
}

TEST_F(GpuDevicesTest, AWaitForMemoryIsToldOfTheEnd) {
  gpus_.options.process.stop_limit = absl::Milliseconds(10);
  ASSERT_OK(gpus_.Open());
  SendSignal(gpus_["a.4"].process().pid(), SIGSTOP);
  ASSERT_OK_AND_ASSIGN(const std::shared_ptr<Arena> arena,
                       gpus_.devices().MakeArena(KeyOf("a.4"), ByteCount(100)));
  gpus_.loop().RunOnce(absl::ZeroDuration());
  EXPECT_OK(arena->status());
  gpus_.Stop();
  EXPECT_THAT(arena->status(), StatusIs(absl::StatusCode::kUnavailable, HasSubstr("stops")));
}

// One after the other would take four times as long.
TEST(GpuDevicesStopTest, GpusThatDoNotEndStopWithinOneLimit) {
  StandInGpus gpus({"a.0", "a.1", "a.2", "a.3"});
  gpus.options.process.stop_limit = absl::Milliseconds(500);
  ASSERT_OK(gpus.Open());
  for (const GpuDevices::Driver& driver : gpus.devices().drivers()) {
    SendSignal(gpus.devices().Find(driver.device)->process().pid(), SIGSTOP);
  }
  const absl::Time begin = absl::Now();
  gpus.Stop();
  const absl::Duration taken = absl::Now() - begin;
  EXPECT_GE(taken, absl::Milliseconds(500));
  EXPECT_LT(taken, absl::Milliseconds(1500));
}

TEST_F(GpuDevicesTest, AHostWithoutADriverHasNone) {
  gpus_.options.process.driver_library = "libcrossmesh-no-driver.so";
  EXPECT_THAT(gpus_.Open(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                     HasSubstr("libcrossmesh-no-driver.so")));
  EXPECT_THAT(gpus_.devices().drivers(), IsEmpty());
  EXPECT_TRUE(gpus_.devices().Has(*ParseDevice("a.5")));
  EXPECT_THAT(gpus_.devices().MakeArena(KeyOf("a.5"), ByteCount(5)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr("libcrossmesh-no-driver.so")));
}

// A state of the machine that passes, as the driver tells it: by a fault, and in words.
using PassingState = std::pair<std::string, std::string>;

class PassingStateTest : public GpuDevicesTest, public testing::WithParamInterface<PassingState> {
 protected:
  void SetUp() override {
    std::ofstream(faults_) << GetParam().first;
    gpus_.options.process.environment.push_back(
        absl::StrCat("CROSSMESH_STANDIN_FAULTS_FILE=", faults_));
  }

  const TemporaryFolder folder_;
  const std::string faults_ = folder_.PathOf("faults");
};

TEST_P(PassingStateTest, IsWaitedForAtTheFirstGpuToo) {
  ASSERT_OK(gpus_.Open());
  EXPECT_THAT(gpus_.devices().drivers(), SizeIs(2));
  EXPECT_EQ(gpus_["a.4"].state(), GpuDevice::State::kDown);
  EXPECT_THAT(gpus_["a.4"].cause(),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(GetParam().second)));
  EXPECT_THAT(gpus_.devices().MakeArena(KeyOf("a.4"), ByteCount(5)),
              StatusIs(absl::StatusCode::kUnavailable, HasSubstr(GetParam().second)));
  std::filesystem::remove(faults_);
  gpus_.RunUntil([&] {
    return gpus_["a.4"].state() == GpuDevice::State::kUp &&
           gpus_["a.5"].state() == GpuDevice::State::kUp;
  });
  EXPECT_OK(gpus_.MakeArena("a.4", 5));
}

INSTANTIATE_TEST_SUITE_P(
    All, PassingStateTest,
    testing::Values(PassingState{"driver_result=802", "CUDA_ERROR_SYSTEM_NOT_READY"},
                    PassingState{"driver_result=304", "CUDA_ERROR_OPERATING_SYSTEM"},
                    PassingState{"context_result=46", "CUDA_ERROR_DEVICE_UNAVAILABLE"}));

TEST_F(GpuDevicesTest, AGpuThatIsNotThereStaysUnavailable) {
  gpus_.options.gpus[1].gpu = "GPU-00000000-0000-0000-0000-000000000000";
  ASSERT_OK(gpus_.Open());
  EXPECT_EQ(gpus_["a.4"].state(), GpuDevice::State::kUp);
  EXPECT_EQ(gpus_["a.5"].state(), GpuDevice::State::kGivenUp);
  EXPECT_THAT(gpus_.devices().drivers(), SizeIs(2));
  EXPECT_EQ(gpus_.devices().drivers()[1].rank.incarnation, 0);
  EXPECT_THAT(gpus_.devices().MakeArena(KeyOf("a.5"), ByteCount(5)),
              StatusIs(absl::StatusCode::kUnavailable,
                       AllOf(HasSubstr("GPU-00000000"), HasSubstr("CUDA_ERROR_NO_DEVICE"))));
}

// A process sees the first instance, unless another one is named.
TEST_F(GpuDevicesTest, MigInstancesAreGpusByTheirUuids) {
  gpus_.options.process.environment.push_back("CROSSMESH_STANDIN_MIG=1");
  for (GpuName& name : gpus_.options.gpus) name.gpu.replace(0, 3, "MIG");
  ASSERT_OK(gpus_.Open());
  for (const char* const device : {"a.4", "a.5"}) {
    EXPECT_EQ(gpus_[device].state(), GpuDevice::State::kUp) << gpus_[device].cause();
    EXPECT_EQ(gpus_[device].rank().gpu, gpus_[device].gpu());
    EXPECT_OK(gpus_.MakeArena(device, 5));
  }
}

}  // namespace
}  // namespace crossmesh
