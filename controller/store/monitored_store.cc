#include "controller/store/monitored_store.h"

namespace crossmesh {

void MonitoredStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  store_->CommitThen(std::move(transaction), [on_unusable = on_unusable_, done = std::move(done)](
                                                 absl::StatusOr<int64_t> revision) mutable {
    const absl::Status& status = revision.status();
    if (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) on_unusable(status);
    done(std::move(revision));
  });
}

}  // namespace crossmesh
