#include "controller/store/monitored_store.h"

#include "controller/store/forwarding_store.h"

#include <cstdint>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

class MonitoredStore final : public ForwardingStore {
 public:
  MonitoredStore(std::shared_ptr<MetadataStore> store,
                 std::function<void(const absl::Status&)> on_unusable)
      : ForwardingStore(*store), owned_(std::move(store)), on_unusable_(std::move(on_unusable)) {}

  void CommitThen(StoreTransaction transaction, CommitDone done) override {
    store().CommitThen(std::move(transaction), [on_unusable = on_unusable_, done = std::move(done)](
                                                   absl::StatusOr<int64_t> revision) mutable {
      const absl::Status& status = revision.status();
      if (absl::IsDataLoss(status) || absl::IsFailedPrecondition(status)) on_unusable(status);
      done(std::move(revision));
    });
  }

 private:
  const std::shared_ptr<MetadataStore> owned_;
  const std::function<void(const absl::Status&)> on_unusable_;
};

}  // namespace

std::shared_ptr<MetadataStore> MakeMonitoredStore(
    std::shared_ptr<MetadataStore> store, std::function<void(const absl::Status&)> on_unusable) {
  return std::make_shared<MonitoredStore>(std::move(store), std::move(on_unusable));
}

}  // namespace crossmesh
