// A short history: one of everything, a crash, and the end as soon as all has ended.

#include "controller/store/sqlite/testing/simulated_disk.h"
#include "tests/simulation/simulated_cluster.h"
#include "tests/simulation/simulated_state_folder.h"

#include <algorithm>
#include <span>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kCancelled = 1;                                    // this client's reshard
constexpr absl::Duration kReshardTime = absl::Milliseconds(10);  // that one takes, about
constexpr absl::Duration kBeginMax = absl::Seconds(2);
constexpr int kIterations = 2;
constexpr absl::Duration kLookPause = absl::Milliseconds(500);
constexpr absl::Duration kAnswersMax = absl::Seconds(2);
constexpr absl::Duration kEndMax = absl::Minutes(9);

}  // namespace

SimulatedClient::Habits SimulatedCluster::HabitsOfClient(int number) const {
  if (options_.calm.has_value()) return {.pause_max = 2 * options_.calm->reshard_every};
  if (!options_.is_short) return {};
  return {.operations = 1,
          .pause_max = kBeginMax,
          .cancels = number == kCancelled ? 1.0 : 0.0,
          .cancels_within = kReshardTime};
}

SimulatedPipelineClient::Habits SimulatedCluster::HabitsOfPipelines() const {
  if (!options_.is_short) return {};
  return {.runs = 1, .iterations_max = kIterations, .pause_max = kBeginMax, .stops = 0};
}

void SimulatedCluster::AddObjectClient(const std::vector<SimulatedController*>& controllers) {
  object_client_ = std::make_unique<SimulatedObjectClient>(
      SimulatedObjectClient::Ports{.node = AddNode(absl::StrCat("client-", reshards_.size() + 1)),
                                   .network = network_,
                                   .history = history_,
                                   .controllers = controllers});
}

void SimulatedCluster::RunShort() {
  object_client_->Start();
  if (const std::optional<SimulatedCrash>& crash = options_.crash; crash.has_value()) {
    nodes_[crash->node]->EndBefore(crash->effect, [this, crash] { Crash(*crash); });
  }
  while (world_.now() < kEndMax && !HasAllEnded()) {
    if (!RunUntil(world_.now() + kLookPause)) return;
  }
  for (size_t i = 0; i < controllers_.size() + workers_.size(); ++i) {
    effects_.push_back(nodes_[i]->effects());
  }
  LookAgain();
  if (RunUntil(world_.now() + kAnswersMax)) CheckEnd();
}

bool SimulatedCluster::HasAllEnded() const {
  const auto is_done = [](const auto& client) { return client->is_done(); };
  if (!std::ranges::all_of(clients_, is_done) || !is_done(pipeline_client_)) return false;
  if (!is_done(object_client_)) return false;
  // One that has just ended is missed by nobody yet.
  const auto processes = std::span(nodes_).first(controllers_.size() + workers_.size());
  if (!std::ranges::all_of(processes, [](const auto& node) { return node->is_up(); })) return false;
  const bool has_leader =
      std::ranges::any_of(controllers_, [](const auto& controller) { return controller->leads(); });
  return has_leader &&
         std::ranges::all_of(controllers_,
                             [](const auto& each) { return each->MissingWorker().empty(); }) &&
         std::ranges::all_of(workers_, [](const auto& each) { return each->Leftovers().empty(); });
}

// What clients were told must be so after all that has happened.
void SimulatedCluster::LookAgain() {
  for (const auto& client : clients_) client->LookAgain();
  pipeline_client_->LookAgain();
  object_client_->LookAgain();
  for (const auto& client : metadata_clients_) client->LookAgain();
}

void SimulatedCluster::Crash(const SimulatedCrash& crash) {
  if (crash.node < std::ssize(controllers_)) {
    disturbed_ = std::max(disturbed_, world_.now() + 2 * kRestartPause);
  }
  if (crash.loses_power) state_->disk().PowerOff();
  StartAgain(crash.node, kRestartPause);
}

}  // namespace crossmesh
