#include "controller/catalog/network_record.h"

#include "common/base/status_macros.h"
#include "controller/catalog/network_codec.h"
#include "planner/parallelism/measured_axes.h"

#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr char kKey[] = "network/current";

absl::StatusOr<NetworkDescription> Decode(const std::string& bytes) {
  v1::Network message;
  if (!message.ParseFromString(bytes)) return absl::InternalError("bytes do not parse");
  return FromProto(message);
}

}  // namespace

bool operator==(const NetworkDescription& a, const NetworkDescription& b) {
  const bool have_equal_axes =
      a.axes == nullptr || b.axes == nullptr ? a.axes == b.axes : *a.axes == *b.axes;
  return a.topology == b.topology && a.revision == b.revision && a.time == b.time &&
         a.source == b.source && have_equal_axes;
}

absl::StatusOr<NetworkRecord::Stored> NetworkRecord::Read() {
  ASSIGN_OR_RETURN(const int64_t revision, store_.RevisionOf(kKey));
  {
    const MutexLock lock(mutex_);
    if (kept_.revision == revision) return kept_;
  }
  ASSIGN_OR_RETURN(const StoredObject object, store_.Get(kKey));
  absl::StatusOr<NetworkDescription> decoded = Decode(object.value);
  if (!decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("stored network description: ", decoded.status().message()));
  }
  Stored stored = {std::make_shared<const NetworkDescription>(*std::move(decoded)),
                   object.revision};
  const MutexLock lock(mutex_);
  kept_ = stored;
  return stored;
}

absl::StatusOr<std::shared_ptr<const NetworkDescription>> NetworkRecord::Get() {
  ASSIGN_OR_RETURN(Stored stored, Read());
  return std::move(stored.description);
}

absl::StatusOr<std::shared_ptr<const NetworkDescription>> NetworkRecord::Set(Change change) {
  ASSIGN_OR_RETURN(const Stored stored, Read());
  const NetworkDescription& current = *stored.description;
  if (change.revision.has_value() && *change.revision != current.revision) {
    return absl::AbortedError(absl::StrCat("network description: expected revision ",
                                           *change.revision, ", found ", current.revision));
  }
  if (change.axes != nullptr && current.revision > 0 && current.topology == change.topology) {
    change.source = current.source;
  } else if (change.source != NetworkSource::kMeasured && current.source == change.source &&
             current.topology == change.topology) {
    return stored.description;
  }
  auto next = std::make_shared<const NetworkDescription>(
      NetworkDescription{.topology = std::move(change.topology),
                         .revision = current.revision + 1,
                         .time = change.time,
                         .source = change.source,
                         .axes = std::move(change.axes)});
  const StoreTransaction write{.epoch = epoch_,
                               .requirements = {{kKey, stored.revision}},
                               .writes = {{kKey, ToProto(*next).SerializeAsString()}}};
  ASSIGN_OR_RETURN(const int64_t revision, store_.Commit(write));
  const MutexLock lock(mutex_);
  // A later Set may have kept its own meanwhile.
  if (revision > kept_.revision) kept_ = {next, revision};
  return next;
}

}  // namespace crossmesh
