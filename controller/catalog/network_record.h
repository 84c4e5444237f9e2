#pragma once

#include "common/base/mutex.h"
#include "common/mesh/topology.h"
#include "controller/store/metadata_store.h"

#include <cstdint>
#include <memory>
#include <optional>

#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class MeasuredAxes;

enum class NetworkSource : uint8_t {
  kNone,      // the network has not been described
  kFile,      // that the controller was started with
  kClient,    // set over the API
  kMeasured,  // by probes between workers
};

// The network, as it was described at some time.
struct NetworkDescription {
  Topology topology;
  int64_t revision = 0;  // counts descriptions, from 1; 0: there is none
  absl::Time time;
  NetworkSource source = NetworkSource::kNone;
  // Measured since the network was described so; null: none.
  std::shared_ptr<const MeasuredAxes> axes = nullptr;
  friend bool operator==(const NetworkDescription& a, const NetworkDescription& b);
};

// The one current description of the network, as a record over the store. What was read once is
// kept decoded. Thread-safe.
class NetworkRecord {
 public:
  // The record lives under "network/current" in the store, which must outlive this. `epoch` is the
  // controller's fencing number.
  NetworkRecord(MetadataStore& store, uint64_t epoch) : store_(store), epoch_(epoch) {}

  // Never null; revision 0 before the first Set. Internal: stored bytes that do not parse.
  absl::StatusOr<std::shared_ptr<const NetworkDescription>> Get();

  struct Change {
    Topology topology;
    NetworkSource source = NetworkSource::kClient;
    absl::Time time;
    std::optional<int64_t> revision = std::nullopt;  // that it takes the place of; nothing: any
    std::shared_ptr<const MeasuredAxes> axes = nullptr;
  };
  // The description as it is now, one revision on; but what is there already, from the same source,
  // stays as it is, so that setting it again is harmless. (To have measured it again is news.) With
  // axes on the network as it is described, only they change, and the source stays.
  // Aborted: the revision is another, or
  // changes meanwhile; what the store's Commit says.
  absl::StatusOr<std::shared_ptr<const NetworkDescription>> Set(Change change);

 private:
  struct Stored {
    std::shared_ptr<const NetworkDescription> description;
    int64_t revision = 0;  // the store's; 0: there is no record
  };
  absl::StatusOr<Stored> Read();

  MetadataStore& store_;
  const uint64_t epoch_;

  Mutex mutex_;
  Stored kept_ ABSL_GUARDED_BY(mutex_) = {std::make_shared<const NetworkDescription>()};
};

}  // namespace crossmesh
