#include "tests/simulation/simulated_history.h"

#include "common/mesh/device.h"

#include <algorithm>

#include <absl/strings/str_cat.h>

namespace crossmesh {

void SimulatedHistory::Violated(std::string what) {
  world_.Log("VIOLATION", what);
  if (!violation_.has_value()) violation_ = std::move(what);
}

void SimulatedHistory::OnDestination(const Place& place, std::optional<int64_t> version) {
  const SampleReshard& reshard = reshards_[place.reshard];
  const std::string name = absl::StrCat(reshard.destination_storage, " of ",
                                        ToString(reshard.destinations[place.destination]));
  if (!version.has_value()) return Violated(absl::StrCat(name, " is no version: it is mixed"));
  world_.Log(name, "has version", absl::StrCat(*version));
  auto& [life, known] = holds_[{place.reshard, place.destination}];
  if (life == place.life && *version <= known) {
    Violated(absl::StrCat(name, " has version ", *version, " again, after ", known));
  }
  if (*version > 0) {
    const auto operation = operations_.find({place.reshard, *version});
    if (operation == operations_.end()) {
      Violated(absl::StrCat(name, " has version ", *version, ", which nobody has asked for"));
    }
  }
  life = place.life;
  known = *version;
}

void SimulatedHistory::OnRequest(int reshard, int64_t version) {
  Operation& operation = operations_[{reshard, version}];
  if (!operation.lives.empty()) return;
  for (size_t i = 0; i < reshards_[reshard].destinations.size(); ++i) {
    operation.lives.push_back(holds_[{reshard, i}].first);
  }
}

void SimulatedHistory::OnTold(int reshard, int64_t version, const v1::Operation& told) {
  Operation& operation = operations_[{reshard, version}];
  if (operation.id.empty()) operation.id = told.id();
  if (operation.id != told.id()) {
    Violated(
        absl::StrCat("request ", told.request_id(), " began ", operation.id, " and ", told.id()));
  }
  // What was said before may come later, by another call.
  if (operation.end.has_value() && told.has_end_time() && *operation.end != told.state()) {
    Violated(absl::StrCat("operation ", told.id(), " had ended as ",
                          v1::OperationState_Name(*operation.end), ", and is now ",
                          v1::OperationState_Name(told.state())));
  }
  if (told.has_end_time() && !operation.end.has_value()) OnEnd(reshard, version, told);
}

void SimulatedHistory::OnSaid(const v1::Operation& said, uint64_t epoch) {
  if (said.has_end_time() || epoch < committed_epoch_) return;
  const auto found = ends_.find(said.id());
  if (found == ends_.end()) return;
  Violated(absl::StrCat("operation ", said.id(), " had ended as ",
                        v1::OperationState_Name(found->second), ", and is said to be ",
                        v1::OperationState_Name(said.state())));
}

void SimulatedHistory::OnEnd(int reshard, int64_t version, const v1::Operation& told) {
  Operation& operation = operations_[{reshard, version}];
  operation.end = told.state();
  ends_[told.id()] = told.state();
  ++ended_;
  world_.Log(told.id(), "has ended", v1::OperationState_Name(told.state()));
  const SampleReshard& sample = reshards_[reshard];
  const bool all = told.state() == v1::OPERATION_STATE_COMMITTED;
  if (all) ++committed_;
  for (size_t i = 0; i < sample.destinations.size(); ++i) {
    const auto replica = static_cast<int>(sample.replica_of(i));
    const bool is_committed =
        all || (replica < told.replicas_size() &&
                told.replicas(replica).state() == v1::REPLICA_STATE_COMMITTED);
    const auto& [life, holds] = holds_[{reshard, i}];
    // A process that was started since has lost its memory.
    if (!is_committed || life != operation.lives[i]) continue;
    if (holds == version) continue;
    Violated(absl::StrCat("operation ", told.id(), " has committed replica ", replica,
                          " of version ", version, ", and ", ToString(sample.destinations[i]),
                          " has version ", holds));
  }
}

void SimulatedHistory::OnUnknown(const std::string& id) {
  Violated(absl::StrCat("operation ", id, ", of which a client was told, is not known"));
}

void SimulatedHistory::OnCounterRead(int64_t value, uint64_t epoch) {
  if (counted_.empty() || value >= *counted_.rbegin() || epoch < committed_epoch_) return;
  Violated(absl::StrCat("the store has counted to ", value, ", and a client was told of ",
                        *counted_.rbegin()));
}

void SimulatedHistory::OnCounted(int64_t value) {
  if (counted_.insert(value).second) return;
  Violated(absl::StrCat("two clients were told that they have counted to ", value));
}

void SimulatedHistory::OnObeyed(const std::string& worker, uint64_t epoch) {
  uint64_t& highest = obeyed_[worker];
  if (epoch < highest) {
    Violated(absl::StrCat("worker ", worker, " obeys a controller of epoch ", epoch, " after ",
                          highest));
  }
  highest = std::max(highest, epoch);
}

void SimulatedHistory::OnCommitted(uint64_t epoch) {
  if (epoch < committed_epoch_) {
    Violated(
        absl::StrCat("a commit of epoch ", epoch, " is taken after one of ", committed_epoch_));
  }
  committed_epoch_ = std::max(committed_epoch_, epoch);
}

void SimulatedHistory::CheckAllEnded() {
  for (const auto& [key, operation] : operations_) {
    if (operation.end.has_value()) continue;
    Violated(absl::StrCat("version ", key.second, " of ", reshards_[key.first].destination_storage,
                          operation.id.empty() ? ": no controller has taken it, long after"
                                               : absl::StrCat(": operation ", operation.id,
                                                              " has not ended, long after"),
                          " the last fault"));
  }
}

}  // namespace crossmesh
