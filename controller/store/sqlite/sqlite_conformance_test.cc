#include "common/base/clock.h"
#include "common/testing/temporary_folder.h"
#include "controller/store/forwarding_store.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/store/testing/store_conformance.h"

#include <cstdint>
#include <memory>

namespace crossmesh {
namespace {

const RealClock& RealTime() {
  static const RealClock clock;
  return clock;
}

struct OpenFolder {
  explicit OpenFolder(int64_t commits_kept)
      : store(*SqliteStore::Open({.folder = folder.PathOf("state"),
                                  .clock = RealTime(),
                                  .commits_kept = commits_kept,
                                  .reserve_bytes = 0})) {}
  const TemporaryFolder folder;
  const std::unique_ptr<SqliteStore> store;
};

// A store in a folder that goes with it.
class StoreInAFolder final : OpenFolder, public ForwardingStore {
 public:
  explicit StoreInAFolder(int64_t commits_kept)
      : OpenFolder(commits_kept), ForwardingStore(*OpenFolder::store) {}
};

INSTANTIATE_TEST_SUITE_P(Sqlite, StoreConformance,
                         testing::Values(StoreFactory([](int64_t commits_kept) {
                           return std::make_unique<StoreInAFolder>(commits_kept);
                         })));

}  // namespace
}  // namespace crossmesh
