#include "planner/pipeline/planning/schedule_planner.h"

#include "common/base/digest_builder.h"
#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "planner/pipeline/formats/schedule_file.h"
#include "planner/pipeline/memory.h"
#include "planner/pipeline/planning/buffer_proof.h"
#include "planner/pipeline/planning/buffered_run.h"
#include "planner/pipeline/planning/microbatch_sizes.h"
#include "planner/pipeline/planning/plan_ports.h"
#include "planner/pipeline/planning/transfer_buffers.h"
#include "planner/pipeline/schedules/schedule_names.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Each microbatch, or all parts of its sequences, goes all the way before the next one begins: what
// no schedule does with less memory, where stages of a rank depend on one another.
Schedule OneByOne(const PipelineProfile& profile, int32_t microbatches) {
  const auto stages = static_cast<int32_t>(profile.stages.size());
  Schedule schedule{.stages = stages, .microbatches = microbatches};
  schedule.ranks.resize(profile.ranks());
  const int32_t parts = profile.sequence_parts;
  for (MicrobatchIndex first = 0; first < microbatches; first += parts) {
    for (StageIndex s = 0; s < stages; ++s) {
      for (MicrobatchIndex m = first; m < first + parts; ++m) {
        schedule.ranks[profile.stages[s].rank].push_back({OpKind::kForward, s, m});
      }
    }
    for (StageIndex s = stages - 1; s >= 0; --s) {
      for (MicrobatchIndex m = first + parts - 1; m >= first; --m) {
        schedule.ranks[profile.stages[s].rank].push_back({OpKind::kBackward, s, m});
      }
    }
  }
  return schedule;
}

// Of which no bound of the other form would hold.
BackwardForm FormOf(const Schedule& schedule) {
  for (const std::vector<Op>& row : schedule.ranks) {
    for (const Op& op : row) {
      if (op.kind == OpKind::kWeightGradient) return BackwardForm::kSplit;
    }
  }
  return BackwardForm::kFull;
}

// Of everything that workers must agree on.
Digest IdOf(const PlannedPipeline& planned) {
  DigestBuilder builder;
  builder.AddText("crossmesh pipeline plan 1");
  builder.AddText(ToString(planned.schedule));
  builder.AddInt(std::ssize(planned.description.ranks));
  for (const PipelineDescription::Rank& rank : planned.description.ranks) {
    builder.AddText(ToString(*rank.mesh));
  }
  builder.AddInt(std::ssize(planned.description.stages));
  for (const PipelineDescription::Stage& stage : planned.description.stages) {
    builder.AddInt(stage.rank);
  }
  builder.AddInt(std::ssize(planned.description.edges));
  for (const PipelineDescription::Edge& edge : planned.description.edges) {
    builder.AddInts(edge.from, edge.to, edge.tensors.size());
    for (const PipelineDescription::Tensor& tensor : edge.tensors) {
      builder.AddText(tensor.tensor.name);
    }
  }
  builder.AddInt(std::ssize(planned.description.samples));
  for (const int64_t samples : planned.description.samples) builder.AddInt(samples);
  builder.AddInt(std::ssize(planned.transfers));
  for (const PlannedTransfer& transfer : planned.transfers) {
    builder.AddInts(transfer.index, transfer.samples, transfer.buffers);
    builder.AddDigest(transfer.plan == nullptr ? Digest() : transfer.plan->id());
  }
  return builder.Finish();
}

}  // namespace

SchedulePlanner::SchedulePlanner(PipelineDescription pipeline, std::vector<EdgePlan> plans)
    : pipeline_(std::move(pipeline)), plans_(std::move(plans)) {
  for (const EdgePlan& plan : plans_) {
    counts_.push_back(static_cast<int32_t>(std::ranges::count(pipeline_.samples, plan.samples)));
  }
  profile_.sequence_parts = pipeline_.sequence_parts;
  AddStages();
  AddEdges();
  AddPorts();
  profile_ = ProfileWithBuffers(1);
  // A second message for each transfer is nearly always of use; without memory for it, one does.
  rooms_ = {ProfileWithBuffers(2), profile_};
}

absl::StatusOr<SchedulePlanner> SchedulePlanner::Create(PipelineDescription pipeline,
                                                        CancelCheck cancelled) {
  ASSIGN_OR_RETURN(std::vector<EdgePlan> plans, PlanEdges(pipeline, cancelled));
  SchedulePlanner planner(std::move(pipeline), std::move(plans));
  RETURN_IF_ERROR(Validate(planner.profile_));
  return planner;
}

void SchedulePlanner::AddStages() {
  const int64_t largest = std::ranges::max(pipeline_.samples);
  // Users state times for the first microbatch; profiles have those of the largest one.
  const double scale =
      static_cast<double>(largest) / static_cast<double>(pipeline_.samples.front());
  if (std::ranges::any_of(pipeline_.samples, [=](int64_t samples) { return samples != largest; })) {
    for (const int64_t samples : pipeline_.samples) {
      profile_.microbatch_scale.push_back(static_cast<double>(samples) /
                                          static_cast<double>(largest));
    }
  }
  for (const PipelineDescription::Rank& rank : pipeline_.ranks) {
    profile_.rank_bytes_max.push_back(rank.device_bytes_max);
  }
  for (const PipelineDescription::Stage& stage : pipeline_.stages) {
    profile_.stages.push_back(stage.OfScale(scale));
  }
  for (PairProfile pair : pipeline_.pairs) {
    pair.seconds *= scale;
    profile_.pairs.push_back(pair);
  }
}

void SchedulePlanner::AddEdges() {
  for (const PipelineDescription::Edge& edge : pipeline_.edges) {
    profile_.edges.push_back({.from = edge.from, .to = edge.to});
  }
  const int64_t largest = std::ranges::max(pipeline_.samples);
  for (const EdgePlan& plan : plans_) {
    // Smaller sizes have plans of their own, and take their part of the largest one's time in the
    // profile.
    if (plan.samples != largest) continue;
    EdgeProfile& edge = profile_.edges[plan.transfer / 2];
    const bool is_forward = OpTable::IsForward(plan.transfer);
    (is_forward ? edge.forward_seconds : edge.backward_seconds) = plan.seconds;
    (is_forward ? edge.forward_bytes : edge.backward_bytes) =
        std::max(plan.sender_bytes, plan.receiver_bytes);
  }
}

void SchedulePlanner::AddPorts() {
  const Topology topology = pipeline_.topology.value_or(Topology());
  absl::flat_hash_map<std::string, PortIndex> known;
  for (const EdgePlan& plan : plans_) {
    if (plan.plan == nullptr) continue;
    EdgeProfile& edge = profile_.edges[plan.transfer / 2];
    std::vector<PortIndex>& ports =
        OpTable::IsForward(plan.transfer) ? edge.forward_ports : edge.backward_ports;
    for (const PortBytes& port : PortsOf(*plan.plan, topology)) {
      ports.push_back(
          known.try_emplace(port.port, static_cast<PortIndex>(known.size())).first->second);
    }
    std::ranges::sort(ports);
    const auto repeated = std::ranges::unique(ports);  // other sizes may use the same
    ports.erase(repeated.begin(), repeated.end());
  }
}

PipelineProfile SchedulePlanner::ProfileWithBuffers(int32_t buffers) const {
  PipelineProfile profile = profile_;
  std::vector<int32_t> each;
  for (const int32_t count : counts_) each.push_back(std::min(buffers, count));
  SetBufferBytes(plans_, each, profile);
  return profile;
}

absl::StatusOr<std::shared_ptr<const PlannedPipeline>> SchedulePlanner::Plan(
    const PipelineChoice& choice, CancelCheck cancelled) const {
  auto planned = std::make_shared<PlannedPipeline>();
  planned->description = pipeline_;
  planned->model = choice.search.model;
  planned->profile = profile_;
  RETURN_IF_ERROR(WithLeastMemory(MakeSchedule(choice, cancelled, *planned)));
  ASSIGN_OR_RETURN(OpTable ops, OpTable::Create(planned->schedule, planned->profile));
  planned->ops = std::make_unique<const OpTable>(std::move(ops));
  // First, since its reasons are those of the order: with messages that wait for memory the same
  // orders would look as if they had too little of it.
  absl::StatusOr<PipelineProof> proof = ProvePipeline(planned->schedule, planned->profile);
  RETURN_IF_ERROR(WithLeastMemory(proof.status()));
  planned->proof = *std::move(proof);
  RETURN_IF_ERROR(WithLeastMemory(AddTransfers(*planned)));
  ASSIGN_OR_RETURN(planned->bound, ComputePipelineBound(profile_, microbatches(),
                                                        FormOf(planned->schedule), planned->model));
  planned->id = IdOf(*planned);
  return planned;
}

absl::StatusOr<PipelineBound> SchedulePlanner::BoundOfAll(const SearchOptions& search) const {
  constexpr BackwardForm kForm = BackwardForm::kSplit;
  if (search.objective == SearchObjective::kSpan) {
    return ComputeSpanBound(profile_, microbatches(), kForm);
  }
  return ComputePipelineBound(profile_, microbatches(), kForm, search.model);
}

absl::Status SchedulePlanner::MakeSchedule(const PipelineChoice& choice, CancelCheck cancelled,
                                           PlannedPipeline& planned) const {
  if (choice.schedule == PipelineChoice::kAuto) return Search(choice, cancelled, planned);
  if (choice.schedule.empty()) {
    ASSIGN_OR_RETURN(planned.schedule, ReadSchedule(choice));
    planned.schedule_name = "schedule file";
    return absl::OkStatus();
  }
  planned.schedule_name = choice.schedule;
  std::vector<Schedule> made;  // windows depend on the memory that messages leave
  for (const PipelineProfile& room : rooms_) {
    ASSIGN_OR_RETURN(Schedule schedule,
                     MakeNamedSchedule(choice.schedule, {.profile = room,
                                                         .microbatches = microbatches(),
                                                         .form = choice.search.form,
                                                         .windows = choice.windows}));
    if (made.empty() || made.front() != schedule) made.push_back(std::move(schedule));
  }
  const bool is_last_faster = made.size() > 1 && SecondsOf(made.back(), choice.search) <
                                                     SecondsOf(made.front(), choice.search);
  planned.schedule = std::move(is_last_faster ? made.back() : made.front());
  return absl::OkStatus();
}

double SchedulePlanner::SecondsOf(const Schedule& schedule, const SearchOptions& search) const {
  const absl::StatusOr<OpTable> ops = OpTable::Create(schedule, profile_);
  if (!ops.ok()) return std::numeric_limits<double>::infinity();
  const absl::StatusOr<BufferedRun> found =
      RunWithBuffers(*ops, {pipeline_.samples, plans_, search.model});
  if (!found.ok()) return std::numeric_limits<double>::infinity();
  return ObjectiveOf(found->run, search.objective);
}

absl::Status SchedulePlanner::Search(const PipelineChoice& choice, CancelCheck cancelled,
                                     PlannedPipeline& planned) const {
  SearchOptions options = choice.search;
  const bool is_limited =
      std::ranges::any_of(profile_.rank_bytes_max,
                          [](const std::optional<ByteCount>& most) { return most.has_value(); });
  // Without limits, or where messages take no memory, none ever waits for it.
  if (is_limited && rooms_.front() != rooms_.back()) {
    options.judge = JudgeByBuffers({pipeline_.samples, plans_, options.model});
    options.rooms = rooms_;
  }
  ASSIGN_OR_RETURN(planned.search, SearchSchedules(profile_, microbatches(), options, cancelled));
  planned.schedule = planned.search->best().schedule;
  planned.schedule_name = absl::StrCat(choice.schedule, ": ", planned.search->best().name);
  return absl::OkStatus();
}

absl::StatusOr<Schedule> SchedulePlanner::ReadSchedule(const PipelineChoice& choice) const {
  absl::StatusOr<ScheduleFile> file = ParseScheduleFile(choice.schedule_file);
  const auto refused = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("schedule_file: ", why...));
  };
  if (!file.ok()) return refused(file.status().message());
  std::vector<RankIndex> ranks;
  for (const StageProfile& stage : profile_.stages) ranks.push_back(stage.rank);
  if (file->shape.stage_ranks != ranks) {
    return refused("expected stages on the pipeline's ranks, ", absl::StrJoin(ranks, " "),
                   "; found ", absl::StrJoin(file->shape.stage_ranks, " "));
  }
  if (file->schedule.microbatches != microbatches()) {
    return refused("expected ", microbatches(), " microbatches, found ",
                   file->schedule.microbatches);
  }
  if (choice.search.form == BackwardForm::kFull) return std::move(file->schedule);
  return DelayWeightGradients(file->schedule);
}

// What cannot be has a reason that users can do something about: the rank that has too little.
absl::Status SchedulePlanner::WithLeastMemory(const absl::Status& status) const {
  if (!absl::IsResourceExhausted(status)) return status;
  const PipelineProfile& profile = profile_;
  const Schedule schedule = OneByOne(profile, microbatches());
  ASSIGN_OR_RETURN(const OpTable ops, OpTable::Create(schedule, profile));
  const std::vector<RankMemory> memory = PeakMemory(ops);
  std::string text(status.message());
  for (RankIndex rank = 0; rank < profile.ranks(); ++rank) {
    if (!profile.rank_bytes_max[rank]) continue;
    const ByteCount least = memory[rank].bytes();
    const bool is_too_little = *profile.rank_bytes_max[rank] < least;
    absl::StrAppend(&text, "; rank ", rank, " has ", FormatBytes(*profile.rank_bytes_max[rank]),
                    is_too_little ? " and needs " : ", of which the least could be ",
                    FormatBytes(least), " (", least.value(), " bytes) for one ",
                    profile.sequence_parts == 1 ? "microbatch" : "sequence", " at a time");
  }
  return absl::ResourceExhaustedError(text);
}

absl::Status SchedulePlanner::AddTransfers(PlannedPipeline& planned) const {
  ASSIGN_OR_RETURN(BufferedRun found,
                   RunWithBuffers(*planned.ops, {pipeline_.samples, plans_, planned.model}));
  for (size_t i = 0; i < plans_.size(); ++i) {
    planned.transfers.push_back({.index = plans_[i].transfer,
                                 .samples = plans_[i].samples,
                                 .seconds = plans_[i].seconds,
                                 .plan = plans_[i].plan,
                                 .buffers = found.buffers[i],
                                 .buffers_needed = found.needed[i]});
  }
  planned.run = std::move(found.run);
  planned.proof.memory = std::move(found.memory);
  // In place, since the table of ops refers to it.
  SetBufferBytes(plans_, found.buffers, planned.profile);
  return ProveBuffers(*planned.ops, pipeline_.samples, plans_, found.buffers);
}

}  // namespace crossmesh
