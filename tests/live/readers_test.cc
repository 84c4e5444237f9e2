// Readers of a shadow storage see the old version or the new one, never a mixture.

#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

namespace crossmesh {
namespace {

constexpr uint8_t kVersions = 6;

TEST(ReadersTest, NeverSeeAMixture) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start({.workers = {"node-0", "node-1"}}));
  ASSERT_OK_AND_ASSIGN(const auto reshard, ReshardCase::Create({.manifest = TensorsOf(16 << 20),
                                                                .destination = "on node-1.0",
                                                                .replica_axes = {}},
                                                               *cluster));
  // The versions that are allowed: one before an operation starts, two while it runs.
  std::atomic<int> committed = 0;
  std::atomic<int> published = 0;
  std::atomic<bool> stop = false;
  std::atomic<int> reads = 0;
  Thread reader("reader", [&] {
    while (!stop) {
      const int oldest = committed;
      absl::Status mixture = absl::UnknownError("no version fits");
      // Each try maps the storage anew, so a commit may come between two tries.
      for (int version = oldest; version <= published && !mixture.ok(); ++version) {
        mixture = reshard->Check("node-1", static_cast<uint8_t>(version));
      }
      if (!mixture.ok() && committed > oldest) continue;
      EXPECT_OK(mixture) << "versions " << oldest << " to " << published;
      ++reads;
    }
  });
  for (uint8_t version = 1; version <= kVersions; ++version) {
    ASSERT_OK(reshard->FillSource(version));
    published = version;
    const absl::StatusOr<v1::Operation> operation =
        Execute(cluster->controller_address(), reshard->spec());
    if (!operation.ok() || operation->state() != v1::OPERATION_STATE_COMMITTED) {
      ADD_FAILURE() << (operation.ok() ? operation->ShortDebugString()
                                       : operation.status().ToString());
      break;
    }
    committed = version;
  }
  stop = true;
  reader.Join();
  EXPECT_GT(reads, 0);
}

}  // namespace
}  // namespace crossmesh
