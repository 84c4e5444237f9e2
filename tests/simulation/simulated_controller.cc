#include "tests/simulation/simulated_controller.h"

#include "common/base/digest.h"
#include "common/base/status_macros.h"
#include "common/metrics/controller_metrics.h"
#include "common/rpc/not_leader.h"
#include "common/wire/time_codec.h"
#include "controller/catalog/job_records.h"
#include "controller/dispatch/communicator_leases.h"
#include "controller/dispatch/job_numbers.h"
#include "controller/dispatch/operation_resumption.h"
#include "controller/dispatch/planned_reshard.h"
#include "controller/dispatch/running_operation.h"
#include "controller/dispatch/running_table.h"
#include "controller/dispatch/start_gate.h"
#include "controller/dispatch/testing/fake_communicator_gateway.h"
#include "controller/membership/worker_registry.h"
#include "controller/service/job_registry.h"
#include "controller/service/session_table.h"
#include "tests/simulation/simulated_gateway.h"
#include "tests/simulation/simulated_pipelines.h"
#include "tests/simulation/simulated_queues.h"
#include "tests/simulation/simulated_worker.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::Duration kStallLimit = absl::Seconds(2);
// Workers that do not answer are given up after RunningOperation::kEndingGrace.
constexpr absl::Duration kCancelLimit = absl::Seconds(12);

// Workers that are heard as often as this are not lost.
constexpr absl::Duration kSilentMax = absl::Seconds(4);

absl::Status NotLeader() { return NotLeaderError(std::nullopt); }

absl::StatusOr<v1::Operation> Copy(
    const absl::StatusOr<std::shared_ptr<const v1::Operation>>& operation) {
  if (!operation.ok()) return operation.status();
  return **operation;
}

std::string TokenOf(uint64_t number) {
  std::string token(16, 't');
  for (int i = 0; i < 8; ++i) token[i] = static_cast<char>(number >> (8 * i));
  return token;
}

}  // namespace

// As Controller::Parts: in the order of what uses what.
struct SimulatedController::Term final : MembershipListener {
  Term(const Ports& its_ports, std::shared_ptr<MetadataStore> its_store, uint64_t its_epoch);
  ~Term() override;

  absl::Status TakeUp();
  void Sweep() {
    workers.Sweep();
    queue.PostAfter(WorkerRegistry::kHeartbeatInterval, [this] { Sweep(); });
  }
  absl::StatusOr<std::string> Begin(const Request& request);
  OperationRequest RequestOf(const Request& request, v1::Operation first, uint64_t number);

  void OnWorkerLost(const WorkerRecord& worker, const absl::Status& why) override {
    ports.node.world().Log(ports.node.name(), "loses a worker", worker.name);
    CheckLost(worker);
    operations.WithAll([name = worker.name, why](RunningOperation& operation) {
      operation.WorkerIsLost(name, why);
    });
    pipelines.WorkerIsLost(worker.name, why);
  }
  void OnWorkerReady(const WorkerRecord& /*worker*/) override {}
  void OnGpuProcessLost(const RankName& /*process*/, const absl::Status& /*why*/) override {}

  // One that is heard is not lost.
  void CheckLost(const WorkerRecord& worker) const;

  const Ports& ports;
  const uint64_t epoch;
  ControllerMetrics metrics;
  const std::shared_ptr<MetadataStore> store;
  JobRecords records;
  JobNumbers numbers;
  WorkerRegistry workers;
  SimulatedTaskGateway tasks;
  FakeCommunicatorGateway communicator_gateway;
  SimulatedTaskQueue queue;
  SimulatedPlanners planners;
  JobRegistry<v1::Operation> registry;
  CommunicatorLeases communicators;
  StartGate gate;
  RunningTable<RunningOperation> operations;
  SimulatedPipelines pipelines;
  std::map<int, std::shared_ptr<const PlannedReshard>> planned;
  std::set<std::string> cancelled_early;  // before any worker was asked for anything
  SessionTable session_table;
  std::vector<std::weak_ptr<SimulatedWorkerSession>> sessions;
  std::map<uint64_t, std::shared_ptr<SimulatedStream>> calls;  // by the numbers of their streams
};

SimulatedController::Term::Term(const Ports& its_ports, std::shared_ptr<MetadataStore> its_store,
                                uint64_t its_epoch)
    : ports(its_ports),
      epoch(its_epoch),
      store(std::move(its_store)),
      records(*store, epoch, ports.node.clock(), {.noun = "operation", .id_prefix = "op-"}),
      numbers(epoch),
      workers({}, ports.node.clock(), *this),
      tasks(ports.node, ports.network, ports.workers,
            [this](const v1::ExecuteRequest& first) {
              if (first.has_start()) ports.history.OnStart(first.start().operation_id());
            }),
      queue(ports.node),
      planners(ports.node),
      registry(
          {.records = records, .numbers = numbers, .queue = queue, .clock = ports.node.clock()}),
      communicators({.gateway = communicator_gateway,
                     .workers = workers,
                     .queue = queue,
                     .clock = ports.node.clock(),
                     .metrics = metrics,
                     .bounds = {}}),
      gate(queue),
      operations({.gateway = tasks,
                  .communicators = communicators,
                  .workers = workers,
                  .queue = queue,
                  .planners = planners,
                  .gate = gate,
                  .clock = ports.node.clock(),
                  .sink = registry,
                  .metrics = metrics,
                  .epoch = epoch}),
      pipelines({.node = ports.node,
                 .network = ports.network,
                 .workers = ports.workers,
                 .store = *store,
                 .numbers = numbers,
                 .registry = workers,
                 .queue = queue,
                 .planners = planners,
                 .history = ports.history,
                 .can_record = ports.can_record,
                 .epoch = epoch}),
      session_table({.registry = workers,
                     .operations = operations,
                     .queue = queue,
                     .clock = ports.node.clock(),
                     .metrics = metrics,
                     .epoch = epoch}) {}

SimulatedController::Term::~Term() {
  const absl::Status why = absl::UnavailableError("the controller is stopping");
  for (const std::weak_ptr<SimulatedWorkerSession>& weak : sessions) {
    if (const std::shared_ptr<SimulatedWorkerSession> session = weak.lock()) session->Drop(why);
  }
  for (const auto& [number, stream] : std::exchange(calls, {})) stream->End(1, why);
  pipelines.Stop(why);
  tasks.Stop();
}

void SimulatedController::Term::CheckLost(const WorkerRecord& worker) const {
  const absl::Duration now = ports.node.clock().Monotonic();
  for (const std::weak_ptr<SimulatedWorkerSession>& weak : sessions) {
    const std::shared_ptr<SimulatedWorkerSession> session = weak.lock();
    if (session == nullptr || !session->is_open() || session->worker() != worker.name) continue;
    // Another process may have its name.
    if (session->incarnation() != worker.incarnation) continue;
    const absl::Duration silent = now - session->heard_at();
    if (silent > kSilentMax) continue;
    ports.history.Violated(absl::StrCat("worker ", worker.name, " is lost, and was heard ",
                                        absl::FormatDuration(silent), " before"));
  }
}

// As ReshardService::TakeUp, and PipelineService's.
absl::Status SimulatedController::Term::TakeUp() {
  ASSIGN_OR_RETURN(const std::vector<JobRecords::Unfinished> left, registry.Load());
  for (const JobRecords::Unfinished& job : left) {
    RETURN_IF_ERROR(registry.Resume(
        job,
        [this](JobRegistry<v1::Operation>::Entry entry, const std::string& bytes) -> absl::Status {
          ports.node.world().Log(ports.node.name(), "takes up", entry.job.id());
          OperationRequest request;
          ASSIGN_OR_RETURN(request.resumption, ParseResumption(entry.job, bytes));
          request.shown = std::move(entry.job);
          return operations.Start(std::move(request));
        }));
  }
  return pipelines.TakeUp();
}

// As ReshardService::Begin.
absl::StatusOr<std::string> SimulatedController::Term::Begin(const Request& request) {
  v1::Operation first;
  first.set_request_id(request.id);
  first.set_state(v1::OPERATION_STATE_PREPARING);
  first.set_attempt(1);
  return registry.Begin(
      std::move(first), Digest::Of(request.id), [&](JobRegistry<v1::Operation>::Entry entry) {
        return operations.Start(RequestOf(request, std::move(entry.job), entry.number));
      });
}

OperationRequest SimulatedController::Term::RequestOf(const Request& request, v1::Operation first,
                                                      uint64_t number) {
  const SampleReshard& reshard = ports.reshards[request.reshard];
  OperationRequest operation;
  v1::ExecuteRequest::Start& start = operation.start;
  start.set_operation_id(first.id());
  start.set_operation(number);
  start.set_token(TokenOf(number));
  start.set_source_storage(reshard.source_storage);
  start.set_destination_storage(reshard.destination_storage);
  start.set_checksums(true);
  *start.mutable_stall_limit() = ToProto(kStallLimit);
  operation.deadline = request.deadline;
  operation.shown = std::move(first);
  operation.client = request.id;
  // Every other time it is as if it were not in the cache.
  if (ports.node.world().Happens(0.5)) operation.planned = planned[request.reshard];
  if (operation.planned != nullptr) return operation;
  operation.plan = [this, number = request.reshard, &reshard](auto done) {
    auto plan = PlannedReshard::Create(reshard.asked, {}, ports.node.clock());
    if (plan.ok()) planned[number] = *plan;
    done(std::move(plan));
  };
  return operation;
}

SimulatedController::SimulatedController(const Ports& ports) : ports_(ports) {}

SimulatedController::~SimulatedController() = default;

absl::Status SimulatedController::BeginTerm(std::shared_ptr<MetadataStore> store, uint64_t epoch) {
  ports_.node.world().Log(ports_.node.name(), "leads with epoch", absl::StrCat(epoch));
  term_ = std::make_unique<Term>(ports_, std::move(store), epoch);
  RETURN_IF_ERROR(term_->TakeUp());
  term_->Sweep();
  return absl::OkStatus();
}

void SimulatedController::EndTerm() { term_ = nullptr; }

std::optional<SimulatedController::Metadata> SimulatedController::metadata() const {
  if (term_ == nullptr) return std::nullopt;
  return Metadata{*term_->store, term_->epoch};
}

SimulatedPipelines* SimulatedController::pipelines() const {
  return term_ == nullptr ? nullptr : &term_->pipelines;
}

std::shared_ptr<SimulatedWorkerSession> SimulatedController::AcceptSession(
    const std::shared_ptr<SimulatedStream>& stream,
    SimulatedWorkerSession::OnResponse on_response) {
  if (term_ == nullptr) {
    stream->End(1, NotLeader());
    return nullptr;
  }
  auto session = std::make_shared<SimulatedWorkerSession>(term_->session_table, stream,
                                                          std::move(on_response));
  std::erase_if(term_->sessions, [](const auto& old) { return old.expired(); });
  term_->sessions.push_back(session);
  stream->Hear(1, [session](const absl::Status& /*status*/) { session->OnOver(); });
  return session;
}

std::string SimulatedController::MissingWorker() const {
  if (term_ == nullptr) return "";
  for (const SimulatedWorker* worker : ports_.workers) {
    const absl::StatusOr<WorkerRecord> record = term_->workers.Get(worker->name());
    if (record.ok() && record->state == WorkerState::kReady) continue;
    return absl::StrCat(
        worker->name(), " at ", ports_.node.name(), ": ",
        record.ok() ? std::string(WorkerStateName(record->state)) : record.status().ToString());
  }
  return "";
}

void SimulatedController::Execute(const std::shared_ptr<SimulatedStream>& stream,
                                  const Request& request, OnOperation on_operation) {
  if (term_ == nullptr) return stream->End(1, NotLeader());
  const absl::StatusOr<std::string> id = term_->Begin(request);
  if (!id.ok()) return stream->End(1, id.status());
  term_->calls[stream->number()] = stream;
  stream->Hear(
      1, [this, stream](const absl::Status& /*status*/) { term_->calls.erase(stream->number()); });
  term_->registry.Watch(
      *id, [this, stream,
            on_operation](const absl::StatusOr<std::shared_ptr<const v1::Operation>>& operation) {
        if (!operation.ok()) {
          term_->calls.erase(stream->number());
          stream->End(1, operation.status());
          return false;
        }
        ports_.history.OnSaid(**operation, term_->epoch);
        CheckCancelled(**operation);
        stream->Send(1, "hears of its operation",
                     [on_operation, told = *operation] { on_operation(*told); });
        if (!(*operation)->has_end_time()) return stream->is_open(1);
        term_->calls.erase(stream->number());
        stream->End(1, absl::OkStatus());
        return false;
      });
}

void SimulatedController::Get(const std::shared_ptr<SimulatedStream>& stream, const std::string& id,
                              OnAnswer on_answer) {
  if (term_ == nullptr) return stream->End(1, NotLeader());
  const absl::StatusOr<v1::Operation> answer = Copy(term_->registry.Get(id));
  // One that was replaced and does not know is behind, by its clock.
  if (term_->epoch < ports_.history.committed_epoch()) return stream->End(1, NotLeader());
  stream->Send(1, "is told of an operation", [on_answer, answer] { on_answer(answer); });
  stream->End(1, absl::OkStatus());
}

// As OperationService::Cancel.
void SimulatedController::Cancel(const std::shared_ptr<SimulatedStream>& stream,
                                 const std::string& id, OnAnswer on_answer) {
  if (term_ == nullptr) return stream->End(1, NotLeader());
  const absl::StatusOr<v1::Operation> answer = Copy(term_->registry.Get(id));
  if (answer.ok()) {
    term_->operations.With(id,
                           [](RunningOperation& running) { running.Cancel("a client says so"); });
    if (!ports_.history.HasStarted(id)) term_->cancelled_early.insert(id);
    if (!answer->has_end_time()) ExpectEnd(id);
  }
  stream->Send(1, "is told of a cancellation", [on_answer, answer] { on_answer(answer); });
  stream->End(1, absl::OkStatus());
}

void SimulatedController::CheckCancelled(const v1::Operation& said) {
  if (said.state() != v1::OPERATION_STATE_COMMITTED) return;
  if (!term_->cancelled_early.contains(said.id())) return;
  ports_.history.Violated(absl::StrCat("operation ", said.id(),
                                       " was cancelled before it was started, and has committed"));
}

void SimulatedController::ExpectEnd(const std::string& id) {
  term_->queue.PostAfter(kCancelLimit, [this, id, since = ports_.node.world().now()] {
    const auto operation = term_->registry.Get(id);
    if (!operation.ok() || (*operation)->has_end_time()) return;
    // It ends once that is on record, and it was paused itself, perhaps.
    const absl::Duration passed = ports_.node.world().now() - since;
    if (ports_.can_record(since) && passed < 2 * kCancelLimit) {
      ports_.history.Violated(absl::StrCat("operation ", id, " has not ended ",
                                           absl::FormatDuration(passed),
                                           " after it was cancelled"));
    }
  });
}

}  // namespace crossmesh
