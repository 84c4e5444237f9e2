#pragma once

#include "common/base/clock.h"
#include "controller/store/forwarding_store.h"

#include <cstdint>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class ControllerMetrics;

// Another store, of which it records what commits and reads take and what becomes of them.
// Following is not recorded: it waits. Thread-safe.
class MeasuredStore final : public ForwardingStore {
 public:
  // All outlive it.
  MeasuredStore(MetadataStore& store, const Clock& clock, ControllerMetrics& metrics)
      : ForwardingStore(store), clock_(clock), metrics_(metrics) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override;
  absl::StatusOr<StoredObject> Get(absl::string_view key) const override;
  absl::StatusOr<int64_t> RevisionOf(absl::string_view key) const override;
  absl::StatusOr<std::vector<StoredObject>> List(absl::string_view prefix, absl::string_view after,
                                                 int64_t limit) const override;

 private:
  template <typename Result, typename Read>
  Result Measured(const Read& read) const;

  const Clock& clock_;
  ControllerMetrics& metrics_;
};

}  // namespace crossmesh
