#include "controller/store/measured_store.h"

#include "common/metrics/controller_metrics.h"

#include <utility>

namespace crossmesh {
namespace {

// What is not there, and a requirement that does not hold, are answers and no failures.
StoreResult ResultOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kNotFound:
      return StoreResult::kSuccess;
    case absl::StatusCode::kAborted:
      return StoreResult::kAborted;
    case absl::StatusCode::kResourceExhausted:
      return StoreResult::kFull;
    case absl::StatusCode::kUnavailable:
      return StoreResult::kUnavailable;
    default:
      return StoreResult::kDamaged;
  }
}

}  // namespace

void MeasuredStore::CommitThen(StoreTransaction transaction, CommitDone done) {
  const absl::Duration begin = clock_.Monotonic();
  store().CommitThen(std::move(transaction), [this, begin, done = std::move(done)](
                                                 absl::StatusOr<int64_t> revision) mutable {
    metrics_.StoreTransaction(StoreOp::kWrite, ResultOf(revision.status()),
                              clock_.Monotonic() - begin);
    done(std::move(revision));
  });
}

template <typename Result, typename Read>
Result MeasuredStore::Measured(const Read& read) const {
  const absl::Duration begin = clock_.Monotonic();
  Result result = read();
  metrics_.StoreTransaction(StoreOp::kRead, ResultOf(result.status()), clock_.Monotonic() - begin);
  return result;
}

absl::StatusOr<StoredObject> MeasuredStore::Get(absl::string_view key) const {
  return Measured<absl::StatusOr<StoredObject>>([&] { return store().Get(key); });
}

absl::StatusOr<int64_t> MeasuredStore::RevisionOf(absl::string_view key) const {
  return Measured<absl::StatusOr<int64_t>>([&] { return store().RevisionOf(key); });
}

absl::StatusOr<std::vector<StoredObject>> MeasuredStore::List(absl::string_view prefix,
                                                              absl::string_view after,
                                                              int64_t limit) const {
  return Measured<absl::StatusOr<std::vector<StoredObject>>>(
      [&] { return store().List(prefix, after, limit); });
}

}  // namespace crossmesh
