// What comes before programs start: the plan, the workers, and their programs.

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "common/wire/session_protocol.h"
#include "controller/dispatch/runnable_plan.h"
#include "controller/dispatch/running_pipeline.h"
#include "controller/membership/worker_protocol.h"

#include <algorithm>
#include <set>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::vector<DeviceId> DevicesOfRanks(const RunnablePlan& planned) {
  std::vector<DeviceId> devices;
  for (const std::shared_ptr<const Mesh>& mesh : planned.meshes()) {
    devices.insert(devices.end(), mesh->devices().begin(), mesh->devices().end());
  }
  return devices;
}

absl::Status CheckTakesPart(const WorkerRecord& worker, const std::set<DeviceId>& wanted) {
  if (worker.state != WorkerState::kReady) {
    return absl::FailedPreconditionError(absl::StrCat(
        "worker ", worker.name, ": expected READY, found ", WorkerStateName(worker.state)));
  }
  for (const GpuRecord& gpu : worker.gpus) {
    if (!wanted.contains(gpu.device)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("device ", ToString(gpu.device),
                     ": expected host memory, since it is of a rank of a pipeline that runs; "
                     "found a GPU"));
  }
  return absl::OkStatus();
}

}  // namespace

void RunningPipeline::Begin() {
  if (request_.left.has_value()) {
    TakeUp();
  } else {
    CommitIntent();
  }
  if (!finished_) Plan();
}

// From here on clients know of the run, and so does the next controller. It is planned meanwhile.
void RunningPipeline::CommitIntent() {
  environment_.sink.Commit(
      std::make_shared<const v1::PipelineRun>(run_), request_.resumption,
      [weak = weak_from_this(), &queue = environment_.queue](const absl::Status& status) {
        queue.Post([weak, status] {
          if (const auto self = weak.lock()) self->OnIntent(status);
        });
      });
}

void RunningPipeline::OnIntent(const absl::Status& status) {
  is_recorded_ = status.ok();
  if (!status.ok()) return Feed(Machine::PreparationFailed{status});
  if (planned_ != nullptr && !finished_) LookForWorkers();
}

void RunningPipeline::Plan() {
  const auto plan = [self = shared_from_this()](const absl::Status& turn) {
    const absl::Duration begin = self->environment_.clock.Monotonic();
    PipelineRequest::Planned planned =
        turn.ok() ? self->request_.plan([given_up = self->given_up_] { return given_up->load(); })
                  : PipelineRequest::Planned(turn);
    const absl::Duration took = self->environment_.clock.Monotonic() - begin;
    v1::PipelinePlan summary;
    if (planned.ok()) {
      summary = (*planned)->Summary();
      summary.set_plan_seconds(absl::ToDoubleSeconds(took));
    }
    self->environment_.queue.Post(
        [self, planned = std::move(planned), summary = std::move(summary)]() mutable {
          if (planned.ok()) *self->run_.mutable_plan() = std::move(summary);
          self->OnPlanned(std::move(planned));
        });
  };
  environment_.planners.Post({.client = request_.client, .cost = request_.plan_cost, .work = plan});
}

void RunningPipeline::OnPlanned(PipelineRequest::Planned planned) {
  if (finished_) return;
  if (!planned.ok()) return Feed(Machine::PreparationFailed{planned.status()});
  planned_ = *std::move(planned);
  run_.set_pipeline(planned_->name());
  PublishSoon();
  if (is_recorded_) LookForWorkers();
}

void RunningPipeline::LookForWorkers() {
  const absl::Status found = FindWorkers();
  if (found.ok()) return;
  // Before the first start the client is told at once: no worker is lost that might come back. To
  // a controller that has taken over they all have to come first.
  const bool is_awaited = generation_ > 0 || request_.left.has_value();
  const bool may_come =
      absl::IsUnavailable(found) || (is_awaited && absl::IsFailedPrecondition(found));
  if (!may_come) return Feed(Machine::PreparationFailed{found});
  Feed(Machine::WorkersMissing{found});
  Do(Machine::AwaitWorkers{});
}

absl::Status RunningPipeline::FindWorkers() {
  const std::vector<DeviceId> devices = DevicesOfRanks(*planned_);
  ASSIGN_OR_RETURN(workers_, environment_.workers.OwnersOf(devices));
  // Each release fills tensors with bytes of its own.
  if (run_.rehearsal()) RETURN_IF_ERROR(CheckSpeakAlike(workers_, "rehearsal"));
  const std::set<DeviceId> wanted(devices.begin(), devices.end());
  DevicesOfWorkers owned;
  for (const WorkerRecord& worker : workers_) {
    RETURN_IF_ERROR(CheckTakesPart(worker, wanted));
    if (planned_->has_layers()) {
      RETURN_IF_ERROR(CheckSpeaks(worker, kCoursesProtocol, "layer programs"));
    }
    for (const DeviceId& device : worker.devices) {
      if (wanted.contains(device)) owned[worker.name].push_back(device);
    }
  }
  // Programs depend on nothing but which worker owns which device: that seldom changes.
  if (owned == devices_) {
    TellWorkersReady();
  } else {
    MakePrograms(std::move(owned));
  }
  return absl::OkStatus();
}

RunningPipeline::Programs RunningPipeline::MakeBytes(const RunnablePlan& planned,
                                                     const DevicesOfWorkers& devices) {
  std::vector<std::vector<DeviceId>> owned;
  for (const auto& [worker, of_worker] : devices) owned.push_back(of_worker);
  ASSIGN_OR_RETURN(std::vector<RunnablePlan::Program> made, planned.MakePrograms(owned));
  std::vector<Program> programs;
  for (const auto& [worker, of_worker] : devices) {
    RunnablePlan::Program& program = made[programs.size()];
    auto bytes = std::make_shared<const std::string>(std::move(program.bytes));
    if (bytes->size() > kProgramBytesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("program of worker ", worker, ": expected at most ",
                       static_cast<size_t>(kProgramBytesMax), " bytes, found ", bytes->size(), ""));
    }
    programs.push_back({std::move(bytes), std::move(program.transfers)});
  }
  return programs;
}

void RunningPipeline::MakePrograms(DevicesOfWorkers devices) {
  auto make = [self = shared_from_this(), planned = planned_,
               devices = std::move(devices)](const absl::Status& turn) mutable {
    Programs programs = turn.ok() ? MakeBytes(*planned, devices) : Programs(turn);
    self->environment_.queue.Post(
        [self, devices = std::move(devices), programs = std::move(programs)]() mutable {
          self->OnPrograms(std::move(devices), std::move(programs));
        });
  };
  environment_.planners.Post(
      {.client = request_.client, .cost = request_.plan_cost, .work = std::move(make)});
}

void RunningPipeline::OnPrograms(DevicesOfWorkers devices, Programs programs) {
  if (finished_) return;
  if (!programs.ok()) return Feed(Machine::PreparationFailed{programs.status()});
  devices_ = std::move(devices);
  programs_.clear();
  auto program = programs->begin();
  for (const auto& [worker, of_worker] : devices_) programs_[worker] = std::move(*program++);
  // Again: meanwhile another process may have taken a worker's place.
  LookForWorkers();
}

void RunningPipeline::TellWorkersReady() {
  Machine::WorkersReady ready;
  for (const auto& [worker, of_worker] : devices_) ready.workers.push_back(worker);
  Feed(ready);
}

void RunningPipeline::FindProcesses() {
  starting_.clear();
  for (const WorkerRecord& worker : workers_) {
    for (const DeviceId& device : devices_.at(worker.name)) {
      starting_[device] = {worker.name, worker.incarnation};
    }
  }
  const auto is_replaced = [this](const DeviceId& device) {
    const auto before = computed_.find(device);
    return before != computed_.end() && before->second != starting_.at(device);
  };
  run_.clear_lost_ranks();
  const std::vector<std::shared_ptr<const Mesh>> meshes = planned_->meshes();
  for (int32_t rank = 0; rank < std::ssize(meshes); ++rank) {
    if (std::ranges::any_of(meshes[rank]->devices(), is_replaced)) run_.add_lost_ranks(rank);
  }
  if (run_.lost_ranks().empty()) return;
  LogWarning("pipeline_state_lost", {{"run_id", run_.id()},
                                     {"ranks", absl::StrJoin(run_.lost_ranks(), ",")},
                                     {"complete_iteration", complete_iteration_.value_or(-1)}});
  PublishSoon();
}

}  // namespace crossmesh
