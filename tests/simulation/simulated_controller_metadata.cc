// What clients do with the objects of a controller's store.

#include "common/rpc/not_leader.h"
#include "tests/simulation/simulated_controller.h"

#include <utility>

#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kCommitsAtOnce = 10;
constexpr int64_t kObjectsMax = 100'000;
// Of followers' calls. To list all is a quarter of the cost of a history when each call does.
constexpr double kShareListed = 0.2;

}  // namespace

void SimulatedController::Count(const std::shared_ptr<SimulatedStream>& stream, OnCount on_count) {
  const std::optional<Metadata> leads = metadata();
  if (!leads.has_value()) return stream->End(1, NotLeaderError(std::nullopt));
  const std::string key = "counter/only";
  const absl::StatusOr<StoredObject> object = leads->store.Get(key);
  int64_t value = 0;
  if (object.ok() && !absl::SimpleAtoi(object->value, &value)) value = -1;
  if (object.ok() || absl::IsNotFound(object.status())) {
    ports_.history.OnCounterRead(value, leads->epoch);
  }
  ++value;
  leads->store.CommitThen({.epoch = leads->epoch,
                           .requirements = {{key, object.ok() ? object->revision : 0}},
                           .writes = {{key, absl::StrCat(value)}}},
                          [stream, on_count, value](const absl::StatusOr<int64_t>& revision) {
                            absl::StatusOr<int64_t> answer = value;
                            if (!revision.ok()) answer = revision.status();
                            stream->Send(1, "is told of a count",
                                         [on_count, answer] { on_count(answer); });
                            stream->End(1, absl::OkStatus());
                          });
}

void SimulatedController::Change(const std::shared_ptr<SimulatedStream>& stream,
                                 const StoreTransaction::Write& change, OnChange on_change) {
  const std::optional<Metadata> leads = metadata();
  if (!leads.has_value()) return stream->End(1, NotLeaderError(std::nullopt));
  leads->store.CommitThen({.epoch = leads->epoch, .writes = {change}},
                          [stream, on_change](const absl::StatusOr<int64_t>& revision) {
                            stream->Send(
                                1, "is told of a change",
                                [on_change, told = revision.status()] { on_change(told); });
                            stream->End(1, absl::OkStatus());
                          });
}

void SimulatedController::Read(const std::shared_ptr<SimulatedStream>& stream,
                               const std::string& key, OnValue on_value) {
  const std::optional<Metadata> leads = metadata();
  if (!leads.has_value()) return stream->End(1, NotLeaderError(std::nullopt));
  const absl::StatusOr<StoredObject> object = leads->store.Get(key);
  if (leads->epoch < ports_.history.committed_epoch())
    return stream->End(1, NotLeaderError(std::nullopt));
  if (!object.ok() && !absl::IsNotFound(object.status())) return stream->End(1, object.status());
  std::optional<std::string> value;
  if (object.ok()) value = object->value;
  stream->Send(1, "is told of an object", [on_value, value] { on_value(value); });
  stream->End(1, absl::OkStatus());
}

void SimulatedController::Follow(const std::shared_ptr<SimulatedStream>& stream, int64_t revision,
                                 std::function<void(const Changes&)> on_changes) {
  const std::optional<Metadata> leads = metadata();
  if (!leads.has_value()) return stream->End(1, NotLeaderError(std::nullopt));
  Changes changes{.revision = leads->store.revision()};
  auto commits = leads->store.CommitsAfter(revision, kCommitsAtOnce, absl::ZeroDuration());
  changes.is_compacted = absl::IsOutOfRange(commits.status());
  if (commits.ok()) changes.commits = *std::move(commits);
  if (changes.is_compacted || ports_.node.world().Happens(kShareListed)) {
    auto objects = leads->store.List("", "", kObjectsMax);
    if (!objects.ok()) return stream->End(1, objects.status());
    changes.objects = *std::move(objects);
  }
  stream->Send(1, "is told of changes",
               [on_changes, told = std::make_shared<const Changes>(std::move(changes))] {
                 on_changes(*told);
               });
  stream->End(1, absl::OkStatus());
}

}  // namespace crossmesh
