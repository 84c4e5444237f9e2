#include "controller/store/metadata_store.h"

#include "common/base/mutex.h"

#include <utility>

namespace crossmesh {

absl::StatusOr<int64_t> MetadataStore::Commit(StoreTransaction transaction) {
  Mutex mutex;
  CondVar is_done;
  std::optional<absl::StatusOr<int64_t>> result;
  CommitThen(std::move(transaction), [&](absl::StatusOr<int64_t> revision) {
    const MutexLock lock(mutex);
    result = std::move(revision);
    is_done.SignalAll();
  });
  const MutexLock lock(mutex);
  while (!result.has_value()) is_done.Wait(mutex);
  return *std::move(result);
}

}  // namespace crossmesh
