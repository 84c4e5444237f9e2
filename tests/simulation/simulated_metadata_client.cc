#include "tests/simulation/simulated_metadata_client.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>

namespace crossmesh {

void SimulatedMetadataClient::Start() {
  SimulatedWorld& world = ports_.node.world();
  const absl::Duration pause = world.Between(absl::ZeroDuration(), pause_max_);
  ports_.node.After(pause, [this, &world] {
    world.Happens(0.5) ? Count() : Follow();
    if (world.Happens(0.2)) Count();
    Start();
  });
}

void SimulatedMetadataClient::LookAgain() {
  for (size_t i = 0; i < ports_.controllers.size(); ++i, ++controller_) Count();
}

SimulatedController& SimulatedMetadataClient::NextController() {
  return *ports_.controllers[controller_ % ports_.controllers.size()];
}

void SimulatedMetadataClient::Count() {
  SimulatedController& at = NextController();
  const auto stream = ports_.network.Open(ports_.node, at.node(), [](const auto& /*stream*/) {});
  stream->Hear(0, [this](const absl::Status& status) {
    if (!status.ok()) ++controller_;
  });
  stream->Send(0, "is asked to count", [this, &at, stream] {
    at.Count(stream, [this](const absl::StatusOr<int64_t>& count) {
      if (count.ok()) ports_.history.OnCounted(*count);
    });
  });
}

void SimulatedMetadataClient::Follow() {
  SimulatedController& at = NextController();
  const auto stream = ports_.network.Open(ports_.node, at.node(), [](const auto& /*stream*/) {});
  stream->Hear(0, [this](const absl::Status& status) {
    if (!status.ok()) ++controller_;
  });
  stream->Send(0, "is asked for changes", [this, &at, stream, revision = revision_] {
    at.Follow(stream, revision,
              [this](const SimulatedController::Changes& changes) { OnChanges(changes); });
  });
}

void SimulatedMetadataClient::OnChanges(const SimulatedController::Changes& changes) {
  if (changes.revision < revision_) return;  // of one that is behind
  if (changes.is_compacted) {
    objects_.clear();
    for (const StoredObject& object : *changes.objects) objects_[object.key] = object.value;
    revision_ = changes.revision;
    return;
  }
  for (const StoredCommit& commit : changes.commits) {
    if (commit.revision <= revision_) continue;  // told already
    for (const StoreTransaction::Write& write : commit.writes) {
      if (write.value.has_value()) objects_[write.key] = *write.value;
      if (!write.value.has_value()) objects_.erase(write.key);
    }
    revision_ = commit.revision;
  }
  if (revision_ != changes.revision || !changes.objects.has_value()) return;
  // Both are in the order of keys.
  const bool are_equal = std::ranges::equal(
      objects_, *changes.objects, [](const auto& entry, const StoredObject& object) {
        return entry.first == object.key && entry.second == object.value;
      });
  if (are_equal) return;
  ports_.history.Violated(absl::StrCat(
      "a client that follows commit by commit has ", objects_.size(), " objects at revision ",
      revision_, ", and others than the store, which has ", changes.objects->size()));
}

}  // namespace crossmesh
