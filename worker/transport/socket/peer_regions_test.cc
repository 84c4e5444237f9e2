#include "worker/transport/socket/peer_regions.h"

#include "common/base/log.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "worker/transport/testing/sealed_memory.h"
#include "worker/transport/testing/system_filter.h"

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/seccomp.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PeerRegionsTest : public testing::Test {
 protected:
  static constexpr uint64_t kRegion = 7;

  RegionFile File() const {
    return {.bytes = memory_->bytes().size(),
            .inode = memory_->inode(),
            .fd = static_cast<uint32_t>(memory_->fd())};
  }
  void MapFromThisProcess() { regions_.MapFrom(static_cast<uint32_t>(getpid())); }

  const std::unique_ptr<SealedMemory> memory_ = SealedMemory::Create(10000);
  UnmapQueue unmapped_;
  PeerRegions regions_{unmapped_};
  std::vector<std::string> lines_;

 private:
  const ScopedLogSink log_{[this](const LogRecord& record) { lines_.push_back(record.ToJson()); }};
};

TEST_F(PeerRegionsTest, ARegionIsMappedWhenItIsFirstFound) {
  MapFromThisProcess();
  memory_->bytes()[9999] = std::byte{'x'};
  ASSERT_OK(regions_.Add(kRegion, File()));
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
  ASSERT_OK_AND_ASSIGN(PeerRegion* const region, regions_.Find(kRegion));
  EXPECT_EQ(region->id(), kRegion);
  EXPECT_EQ(region->size(), 10000);
  ASSERT_EQ(region->bytes().size(), 10000);
  EXPECT_EQ(region->bytes()[9999], std::byte{'x'});
  EXPECT_THAT(regions_.Find(kRegion), IsOkAndHolds(region));
  EXPECT_EQ(SealedMemory::CountMappings(), 2);
  EXPECT_THAT(lines_, IsEmpty());
}

TEST_F(PeerRegionsTest, BeforeItIsKnownFromWhereNothingIsMapped) {
  ASSERT_OK(regions_.Add(kRegion, File()));
  ASSERT_OK_AND_ASSIGN(PeerRegion* const region, regions_.Find(kRegion));
  EXPECT_THAT(region->bytes(), IsEmpty());
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

TEST_F(PeerRegionsTest, WhatIsForgottenOrClearedIsUnmapped) {
  MapFromThisProcess();
  for (const uint64_t id : {1, 2, 3}) {
    ASSERT_OK(regions_.Add(id, File()));
    ASSERT_OK(regions_.Find(id));
  }
  EXPECT_EQ(SealedMemory::CountMappings(), 4);
  EXPECT_OK(regions_.Forget(2));
  EXPECT_EQ(SealedMemory::CountMappings(), 3);
  EXPECT_THAT(regions_.Find(2), StatusIs(absl::StatusCode::kInvalidArgument,
                                         "region 2: expected one that is lent, found none"));
  regions_.Clear();
  EXPECT_EQ(SealedMemory::CountMappings(), 1);
}

TEST_F(PeerRegionsTest, OneWithPayloadsIsNotForgotten) {
  ASSERT_OK(regions_.Add(kRegion, File()));
  ASSERT_OK_AND_ASSIGN(PeerRegion* const region, regions_.Find(kRegion));
  region->payloads = 1;
  EXPECT_THAT(regions_.Forget(kRegion),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "region 7: expected no payloads in it when it is forgotten, found 1"));
  region->payloads = 0;
  EXPECT_OK(regions_.Forget(kRegion));
}

TEST_F(PeerRegionsTest, ThereAreAtMost4096) {
  for (uint64_t id = 1; id <= 4096; ++id) ASSERT_OK(regions_.Add(id, {.bytes = 1}));
  EXPECT_THAT(regions_.Add(4097, {.bytes = 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("region 4097: expected at")));
  ASSERT_OK(regions_.Forget(1));
  EXPECT_OK(regions_.Add(4097, {.bytes = 1}));
}

TEST_F(PeerRegionsTest, OneThatTheSystemDoesNotOpenIsTriedOnce) {
  MapFromThisProcess();
  RegionFile file = File();
  file.fd = 1 << 20;
  ASSERT_OK(regions_.Add(kRegion, file));
  for (int i = 0; i < 2; ++i) {
    ASSERT_OK_AND_ASSIGN(PeerRegion* const region, regions_.Find(kRegion));
    EXPECT_THAT(region->bytes(), IsEmpty());
  }
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("shared_memory_refused"),
                                        HasSubstr("/fd/1048576: No such file or directory"))));
}

TEST_F(PeerRegionsTest, OneThatTheSystemDoesNotMapIsTriedOnce) {
  MapFromThisProcess();
  ASSERT_OK(regions_.Add(kRegion, File()));
  Thread("filtered", [&] {
    FilterSharedMappings(SECCOMP_RET_ERRNO | EPERM);
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(PeerRegion* const region, regions_.Find(kRegion));
      EXPECT_THAT(region->bytes(), IsEmpty());
    }
  }).Join();
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("shared_memory_refused"), HasSubstr("mmap: "))));
}

}  // namespace
}  // namespace crossmesh
