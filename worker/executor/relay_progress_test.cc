#include "worker/executor/relay_progress.h"

#include "common/plan/worker_part.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/executor_fixture.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

// What b.0 and b.1 have of MakePlan("a.0", "b.0-1"): a node each, of 32 chunks.
class RelayProgressTest : public testing::Test {
 protected:
  static std::shared_ptr<const PreparedPart> MakePart() {
    const Plan plan = MakePlan("a.0", "b.0-1");
    const std::vector<std::vector<DeviceId>> devices = {{{"a", 0}}, {{"b", 0}, {"b", 1}}};
    std::vector<WorkerPart> parts = *CutParts(plan, devices);
    return *PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(parts[1])));
  }

  void Put(int32_t chunk) { progress_.OnChunkInPlace({.node = 0, .chunk = chunk}); }
  bool CanSend(int32_t chunk, int32_t lag) {
    return progress_.CanSend({.node = 0, .chunk = chunk}, lag);
  }

  static constexpr int32_t kChunks = 32;
  const std::shared_ptr<const PreparedPart> part_ = MakePart();
  RelayProgress progress_{*part_, /*checksums=*/true, [](int32_t /*node*/) {}};
};

TEST_F(RelayProgressTest, AChunkGoesOnWhenSoManyMoreHaveCome) {
  ASSERT_EQ(part_->nodes()[0].chunks, kChunks);
  Put(0);
  EXPECT_TRUE(CanSend(0, 0));
  EXPECT_FALSE(CanSend(0, 1));
  Put(1);
  EXPECT_TRUE(CanSend(0, 1));
  EXPECT_FALSE(CanSend(0, 2));
  Put(5);
  EXPECT_FALSE(CanSend(4, 1)) << "it is not here itself";
}

TEST_F(RelayProgressTest, TheLastChunkStandsForThoseThatDoNotExist) {
  Put(kChunks - 2);
  EXPECT_FALSE(CanSend(kChunks - 2, 1));
  EXPECT_FALSE(CanSend(kChunks - 2, 9));
  Put(kChunks - 1);
  EXPECT_TRUE(CanSend(kChunks - 2, 9));
  EXPECT_TRUE(CanSend(kChunks - 1, 9));
}

TEST_F(RelayProgressTest, ADeviceThatFailedHasNoDigest) {
  progress_.OnRootChecksum(0, 0x1234);
  for (int32_t chunk = 0; chunk < kChunks / 2; ++chunk) Put(chunk);
  progress_.FailNode(0, absl::UnavailableError("worker w0 is lost"));
  const std::optional<DeviceReport> report = progress_.TakeSettledDevice();
  ASSERT_TRUE(report.has_value());
  EXPECT_EQ(report->status, absl::UnavailableError("worker w0 is lost"));
  EXPECT_EQ(report->bytes, 0);
  EXPECT_EQ(report->digest, Digest());
}

}  // namespace
}  // namespace crossmesh
