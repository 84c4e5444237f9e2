#include "tests/simulation/simulated_cluster.h"

#include "tests/simulation/delayed_store.h"
#include "tests/simulation/simulated_state_folder.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int kWorkers = 4;
constexpr absl::Duration kRequestsAfterFaults = absl::Seconds(30);
// Of the last request: deadlines, and what workers keep after them for a controller that comes
// late.
constexpr absl::Duration kAllEndsWithin = absl::Seconds(150);
// Which a controller needs to end at most, when it hears that it no longer leads.
constexpr absl::Duration kProcessEnd = absl::Milliseconds(20);

// Of clients that change metadata and follow their changes.
constexpr absl::Duration kMetadataPauseMax = absl::Seconds(20);
constexpr absl::Duration kShortMetadataPauseMax = absl::Seconds(5);

}  // namespace

SimulatedCluster::SimulatedCluster(const SimulationOptions& options)
    : options_(options),
      has_etcd_(options.seed % 2 == 1),
      reshards_(options.is_short ? MakeSamplesOfAllKinds() : MakeSampleReshards()),
      world_(options.seed, options.keeps_log),
      versions_(reshards_.size(), 0) {
  AddNodes();
  if (options_.is_short) return;
  const std::optional<CalmHistory>& calm = options_.calm;
  if (calm.has_value() && calm->fault_every == absl::InfiniteDuration()) return;
  FaultPlanOptions plan{.seed = options_.seed,
                        .controllers = std::ssize(controllers_),
                        .workers = kWorkers,
                        .has_etcd = has_etcd_,
                        .nodes = std::ssize(nodes_),
                        .end = FaultsEnd()};
  if (calm.has_value()) plan.every = calm->fault_every;
  faults_ = options_.faults.value_or(MakeFaults(plan));
}

absl::Duration SimulatedCluster::FaultsEnd() const {
  return options_.calm.has_value() ? options_.calm->length : absl::Minutes(6);
}

void SimulatedCluster::AddNodes() {
  std::vector<SimulatedController*> controller_list;
  for (int i = 0; i < (has_etcd_ ? 2 : 1); ++i) {
    controllers_.push_back(std::make_unique<SimulatedController>(SimulatedController::Ports{
        .node = AddNode(absl::StrCat("controller-", i)),
        .network = network_,
        .reshards = reshards_,
        .workers = worker_list_,
        .history = history_,
        .can_record = [this](absl::Duration since) { return since > disturbed_; }}));
    controller_list.push_back(controllers_.back().get());
  }
  candidates_.resize(controllers_.size());
  for (const char* host : {"a", "b", "c", "d"}) {
    workers_.push_back(
        std::make_unique<SimulatedWorker>(SimulatedWorker::Ports{.node = AddNode(host),
                                                                 .network = network_,
                                                                 .fabric = fabric_,
                                                                 .reshards = reshards_,
                                                                 .versions = versions_,
                                                                 .history = history_,
                                                                 .runs = runs_},
                                          host));
    workers_.back()->Meet(controller_list);
    worker_list_.push_back(workers_.back().get());
  }
  AddClients(controller_list);
  AddPipelineClient(controller_list);
  if (options_.is_short) AddObjectClient(controller_list);
  if (has_etcd_) {
    etcd_ = std::make_unique<SimulatedEtcd>(AddNode("etcd"), history_);
  } else {
    state_ = std::make_unique<SimulatedStateFolder>(*nodes_[0], options_.seed,
                                                    [this] { StartAgain(0, kRestartPause); });
  }
}

void SimulatedCluster::AddClients(const std::vector<SimulatedController*>& controllers) {
  for (int client = 0; client < std::ssize(reshards_); ++client) {
    SimulatedNode& node = AddNode(absl::StrCat("client-", client));
    if (!HasClient(client)) continue;
    clients_.push_back(
        std::make_unique<SimulatedClient>(SimulatedClient::Ports{.node = node,
                                                                 .network = network_,
                                                                 .workers = worker_list_,
                                                                 .versions = versions_,
                                                                 .history = history_,
                                                                 .controllers = controllers},
                                          client, HabitsOfClient(client)));
    if (options_.calm.has_value()) continue;
    metadata_clients_.push_back(std::make_unique<SimulatedMetadataClient>(
        SimulatedMetadataClient::Ports{
            .node = node, .network = network_, .history = history_, .controllers = controllers},
        options_.is_short ? kShortMetadataPauseMax : kMetadataPauseMax));
  }
}

void SimulatedCluster::AddPipelineClient(const std::vector<SimulatedController*>& controllers) {
  const auto number = static_cast<int>(reshards_.size());
  SimulatedNode& node = AddNode(absl::StrCat("client-", number));
  if (!HasClient(number)) return;
  pipeline_client_ = std::make_unique<SimulatedPipelineClient>(
      SimulatedPipelineClient::Ports{
          .node = node, .network = network_, .history = runs_, .controllers = controllers},
      HabitsOfPipelines());
}

bool SimulatedCluster::HasClient(int number) const {
  if (options_.calm.has_value()) return number == 0;
  return options_.is_short || std::ranges::find(options_.clients, number) != options_.clients.end();
}

SimulatedCluster::~SimulatedCluster() {
  for (const auto& controller : controllers_) controller->EndTerm();
  candidates_.clear();
}

SimulatedNode& SimulatedCluster::AddNode(std::string name) {
  nodes_.push_back(
      std::make_unique<SimulatedNode>(world_, static_cast<int>(nodes_.size()), std::move(name)));
  return *nodes_.back();
}

SimulationResult SimulatedCluster::Run() {
  for (int i = 0; i < std::ssize(nodes_); ++i) StartProcess(i);
  for (const auto& client : clients_) client->Start();
  for (const auto& client : metadata_clients_) client->Start();
  if (pipeline_client_ != nullptr) pipeline_client_->Start();
  if (options_.is_short) {
    RunShort();
  } else {
    RunLong();
  }
  return {.violation = history_.violation(),
          .log = world_.log(),
          .digest = world_.digest(),
          .faults = faults_,
          .simulated = world_.now(),
          .ended = history_.ended(),
          .committed = history_.committed(),
          .iterations = runs_.complete(),
          .effects = effects_};
}

void SimulatedCluster::RunLong() {
  for (const SimulatedFault& fault : faults_) {
    world_.After(fault.at, [this, fault] { Apply(fault); });
  }
  if (!RunUntil(FaultsEnd())) return;
  Heal();
  const absl::Duration requests_end = FaultsEnd() + kRequestsAfterFaults;
  RunUntil(requests_end);
  for (const auto& client : clients_) client->Finish();
  if (pipeline_client_ != nullptr) pipeline_client_->Finish();
  if (RunUntil(requests_end + kAllEndsWithin)) CheckEnd();
}

bool SimulatedCluster::RunUntil(absl::Duration end) {
  try {
    while (!history_.violation().has_value() && world_.StepUntil(end)) {
    }
  } catch (const std::exception& error) {
    // Of containers: what must be there is not.
    history_.Violated(absl::StrCat("an exception: ", error.what()));
  }
  return !history_.violation().has_value();
}

void SimulatedCluster::CheckEnd() {
  history_.CheckAllEnded();
  runs_.CheckAllEnded();
  for (const auto& controller : controllers_) {
    const std::string missing = controller->MissingWorker();
    if (!missing.empty()) history_.Violated(absl::StrCat("at the end without worker ", missing));
  }
  for (const auto& worker : workers_) {
    const std::string leftovers = worker->Leftovers();
    if (!leftovers.empty()) history_.Violated(absl::StrCat("at the end ", leftovers));
  }
}

void SimulatedCluster::StartProcess(int node) {
  if (nodes_[node]->is_up()) return;
  const int controllers = static_cast<int>(controllers_.size());
  if (node < controllers) {
    StartController(node);
  } else if (node < controllers + kWorkers) {
    workers_[node - controllers]->Start();
  } else if (etcd_ != nullptr && nodes_[node].get() == &etcd_->node()) {
    etcd_->Start();
  } else {
    nodes_[node]->Start();
  }
}

void SimulatedCluster::KillProcess(int node) {
  if (!nodes_[node]->is_up()) return;
  const int controllers = static_cast<int>(controllers_.size());
  if (node < controllers) {
    nodes_[node]->Kill();
    network_.Reset(*nodes_[node]);
    controllers_[node]->EndTerm();
    candidates_[node] = nullptr;
    if (state_ != nullptr) state_->Close();
  } else if (etcd_ != nullptr && nodes_[node].get() == &etcd_->node()) {
    nodes_[node]->Kill();
    network_.Reset(*nodes_[node]);
  } else if (node < controllers + kWorkers) {
    workers_[node - controllers]->Kill();
  }
}

void SimulatedCluster::StartController(int node) {
  nodes_[node]->Start();
  if (has_etcd_) return StartCandidate(node);
  nodes_[node]->After(absl::Milliseconds(300), [this, node] { OpenStore(node); });
}

void SimulatedCluster::OpenStore(int node) {
  const absl::Status opened = state_->Open();
  if (opened.ok()) {
    return Lead(node, std::make_shared<DelayedStore>(*nodes_[node], state_->store(), history_),
                state_->next_epoch());
  }
  const bool may_pass = absl::IsUnavailable(opened) || absl::IsResourceExhausted(opened);
  if (!may_pass) history_.Violated(absl::StrCat("no store: ", opened.ToString()));
  StartAgain(node, kRestartPause);
}

// As a service manager does.
void SimulatedCluster::StartAgain(int node, absl::Duration pause) {
  world_.After(absl::ZeroDuration(), [this, node, pause, life = nodes_[node]->life()] {
    if (nodes_[node]->life() != life) return;
    KillProcess(node);
    world_.After(pause, [this, node] { StartProcess(node); });
  });
}

void SimulatedCluster::Lead(int node, std::shared_ptr<MetadataStore> store, uint64_t epoch) {
  const absl::Status status = controllers_[node]->BeginTerm(std::move(store), epoch);
  if (!status.ok()) history_.Violated(absl::StrCat("no take-over: ", status.ToString()));
}

// As the program: it serves one term, and is started again after that.
void SimulatedCluster::StartCandidate(int node) {
  candidates_[node] = std::make_unique<Candidate>(*nodes_[node], network_, *etcd_);
  Candidate& candidate = *candidates_[node];
  const auto start_again = [this, node, life = nodes_[node]->life()] {
    // What it has begun goes on until it ends.
    world_.After(world_.Between(absl::ZeroDuration(), kProcessEnd), [this, node, life] {
      if (nodes_[node]->life() != life) return;
      KillProcess(node);
      world_.After(absl::Milliseconds(500), [this, node] { StartProcess(node); });
    });
  };
  candidate.election = std::make_unique<SimulatedCandidate>(
      *nodes_[node], candidate.calls,
      SimulatedCandidate::Listener{
          .on_leading =
              [this, node, start_again, &candidate](uint64_t epoch, int64_t fence) {
                candidate.store->BeginTerm(fence, [this, node, epoch, start_again,
                                                   &candidate](const absl::Status& status) {
                  if (!status.ok()) return start_again();
                  Lead(node, candidate.store, epoch);
                });
              },
          .on_not_leading =
              [this, node, start_again, &candidate] {
                candidate.store->EndTerm();
                if (controllers_[node]->leads()) start_again();
              }});
  candidate.store->Open([&candidate] { candidate.election->Start(); });
}

}  // namespace crossmesh
