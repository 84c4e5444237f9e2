#include "worker/gpu/executor/gpu_execution.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/plan/communicator_splits.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/executor/bound_leg.h"
#include "worker/gpu/executor/gpu_binding.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// Until their agreement and their first step peers compile and bind their parts, and NCCL connects
// them, which takes seconds where there are many: so many stall limits for each of the two.
constexpr int kBeginningStallLimits = 6;

// What a plan needs is not given up for the rest of it.
static_assert(kCommunicatorSplitsMax <= Communicator::kSplitsKept);

double SecondsSince(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// That the communicator has the device at a rank, which is this process's or another one.
absl::Status CheckRank(const GpuTaskSpec& spec, DeviceRank device, bool is_own) {
  const Communicator& communicator = *spec.communicator;
  const int rank = device < std::ssize(spec.ranks) ? spec.ranks[device] : -1;
  const bool is_there = rank >= 0 && rank < communicator.size();
  if (is_there && (rank == communicator.rank()) == is_own) return absl::OkStatus();
  const TensorTable& tensors = spec.binding->part().part().tensors();
  return absl::InvalidArgumentError(absl::StrCat(
      "device ", ToString(tensors.devices()[device]), ": expected ",
      is_own ? absl::StrCat("rank ", communicator.rank())
             : absl::StrCat("a rank below ", communicator.size(), " but ", communicator.rank()),
      ", found ", rank));
}

// Pieces lie in the order of devices, and NCCL gathers and scatters them in that of ranks.
absl::Status CheckRanksOfCollectives(const GpuTaskSpec& spec) {
  if (!spec.binding->has_collectives() || std::ranges::is_sorted(spec.ranks)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("ranks of a plan with collectives: expected the order of its devices, found ",
                   absl::StrJoin(spec.ranks, ", ")));
}

}  // namespace

absl::Status GpuExecution::Validate(const GpuTaskSpec& spec, const RegisteredStaging& staging) {
  const GpuBinding& binding = *spec.binding;
  const int64_t staging_bytes = AgreementExchange::StagingBytes(binding);
  if (staging_bytes > staging.bytes()) {
    return absl::InvalidArgumentError(absl::StrCat("a compiled part for ", staging_bytes,
                                                   " bytes of staging: expected at most the ",
                                                   staging.bytes(), " bytes that there are"));
  }
  RETURN_IF_ERROR(CheckRank(spec, binding.device(), /*is_own=*/true));
  for (const DeviceRank peer : binding.peers().all) {
    RETURN_IF_ERROR(CheckRank(spec, peer, /*is_own=*/false));
  }
  RETURN_IF_ERROR(CheckRanksOfCollectives(spec));
  for (const BoundLeg& leg : binding.legs()) {
    const auto& peers = binding.has_collectives() ? binding.peers().all : leg.compiled().peers();
    const int64_t group = std::ssize(peers) + 1;
    if (!leg.compiled().is_of_group() || spec.communicator->size() == group) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("the communicator of ranks that make the same calls: expected ", group,
                     " ranks, found ", spec.communicator->size()));
  }
  return absl::OkStatus();
}

GpuExecution::GpuExecution(GpuTaskSpec spec, ExecutionResources& shared, TaskObserver& observer)
    : spec_(std::move(spec)),
      shared_(shared),
      observer_(observer),
      started_(std::chrono::steady_clock::now()),
      agreement_(*spec_.binding, *spec_.communicator, spec_.ranks, shared),
      beginning_stall_(kBeginningStallLimits * StallCounter::kRoundsMax),
      report_{.key = spec_.key} {
  for (const CommunicatorSplit& split : spec_.binding->splits()) {
    RankGroups& groups = splits_.emplace_back(split.begin(), split.end());
    for (std::vector<int>& group : groups) {
      for (int& rank : group) rank = spec_.ranks[rank];
    }
  }
}

void GpuExecution::Begin() {
  state_ = State::kAgreeing;
  spec_.binding->Prepare(spec_.key);
  // Kernels of these two streams read the boxes, which a stream of their own copies to the GPU. The
  // agreement, on the third, uses none.
  absl::Status begun = shared_.pack->WaitFor(spec_.binding->uploaded());
  if (begun.ok()) begun = shared_.unpack->WaitFor(spec_.binding->uploaded());
  if (begun.ok()) begun = agreement_.Begin();
  if (!begun.ok()) Fail(begun);
}

bool GpuExecution::Advance() {
  absl::StatusOr<bool> is_moved = false;
  if (state_ == State::kAgreeing) {
    is_moved = AdvanceAgreement();
  } else if (state_ == State::kSplitting) {
    is_moved = AdvanceSplits();
  } else if (state_ == State::kMoving) {
    is_moved = AdvanceLegs();
  } else if (state_ == State::kDraining) {
    is_moved = AdvanceDraining();
  }
  if (is_moved.ok()) return *is_moved;
  Fail(is_moved.status());
  // Without these events nothing tells of the end.
  if (state_ == State::kDraining) OnEndLimit();
  return true;
}

absl::StatusOr<bool> GpuExecution::AdvanceAgreement() {
  ASSIGN_OR_RETURN(const bool is_agreed, agreement_.Advance());
  if (!is_agreed) return false;
  beginning_stall_.OnProgress();
  state_ = State::kSplitting;
  return true;
}

// Nothing is on the streams, as NCCL wants it.
absl::StatusOr<bool> GpuExecution::AdvanceSplits() {
  while (splits_made_ < splits_.size()) {
    if (!is_splitting_) RETURN_IF_ERROR(spec_.communicator->Split(splits_[splits_made_]));
    is_splitting_ = true;
    ASSIGN_OR_RETURN(const Communicator::Progress progress, spec_.communicator->Poll());
    if (progress == Communicator::Progress::kInProgress) return false;
    is_splitting_ = false;
    ++splits_made_;
  }
  report_.seconds.bind = SecondsSince(started_);
  beginning_stall_.OnProgress();
  state_ = State::kMoving;
  return true;
}

absl::StatusOr<bool> GpuExecution::AdvanceLegs() {
  const int32_t done_before = steps_done();
  const std::vector<BoundLeg>& legs = spec_.binding->legs();
  bool is_moved = false;
  while (leg_ < legs.size()) {
    if (!pipeline_.has_value()) {
      const std::optional<int32_t> split = legs[leg_].split();
      const RankGroups* const groups = split.has_value() ? &splits_[*split] : nullptr;
      pipeline_.emplace(legs[leg_], StepPipeline::Ranks{*spec_.communicator, spec_.ranks, groups},
                        shared_);
    }
    ASSIGN_OR_RETURN(const bool is_leg_moved, pipeline_->Advance());
    is_moved |= is_leg_moved;
    if (!pipeline_->is_done()) break;
    EndLeg();
  }
  if (steps_done() > done_before) stall_.OnProgress();
  if (leg_ == legs.size()) End(State::kOver);
  return is_moved;
}

// Everything of it has been seen to end, so that the next one has staging and streams for itself.
void GpuExecution::EndLeg() {
  steps_of_legs_ = steps_done();
  bytes_of_legs_ = bytes();
  pipeline_.reset();
  ++leg_;
}

int32_t GpuExecution::steps_done() const {
  return steps_of_legs_ + (pipeline_.has_value() ? pipeline_->steps_done() : 0);
}

StepPipeline::Bytes GpuExecution::bytes() const {
  StepPipeline::Bytes bytes = bytes_of_legs_;
  if (pipeline_.has_value()) bytes.Add(pipeline_->bytes());
  return bytes;
}

absl::StatusOr<bool> GpuExecution::AdvanceDraining() {
  for (GpuEvent* const end : {shared_.end_events.packed.get(), shared_.end_events.wired.get(),
                              shared_.end_events.unpacked.get()}) {
    ASSIGN_OR_RETURN(const bool is_done, end->IsDone());
    if (!is_done) return false;
  }
  End(State::kOver);
  return true;
}

void GpuExecution::Fail(const absl::Status& why) {
  if (is_over()) return;
  if (report_.status.ok()) report_.status = why;
  // A lost GPU is the cause of what failed because of it; and no event tells any more of its
  // streams.
  if (!shared_.gpu.health().ok()) {
    report_.status = shared_.gpu.health();
    End(State::kLost);
  } else if (state_ == State::kWaiting) {
    End(State::kOver);
  } else if (is_running()) {
    state_ = State::kFailed;
  }
}

void GpuExecution::OnDeadline() {
  Fail(absl::DeadlineExceededError(absl::StrCat(
      "deadline of ", absl::FormatDuration(spec_.deadline), "; missing: ", Missing())));
}

bool GpuExecution::OnStallRound() {
  if (!is_running()) return false;
  // A rank that only sends does not hear whether its receivers have begun: its first step may have
  // to wait for them.
  const bool may_wait = steps_done() == 0;
  StallCounter& stall = may_wait ? beginning_stall_ : stall_;
  if (!stall.OnRound(is_under_way() || is_splitting_)) return false;
  const absl::Duration limit = (may_wait ? kBeginningStallLimits : 1) * spec_.stall_limit;
  Fail(absl::UnavailableError(absl::StrCat("stalled, nothing was done for ",
                                           absl::FormatDuration(limit), "; missing: ", Missing())));
  return true;
}

std::string GpuExecution::Missing() const {
  if (state_ == State::kWaiting) return "the end of the tasks before it";
  if (state_ == State::kAgreeing) return "the agreement of all peers";
  if (state_ == State::kSplitting) {
    return absl::StrCat("split ", splits_made_, " of the communicator, into ",
                        splits_[splits_made_].size(), " groups");
  }
  if (!pipeline_.has_value()) return "the first step";
  const size_t legs = spec_.binding->legs().size();
  return absl::StrCat(legs > 1 ? absl::StrCat("of leg ", leg_, " of ", legs, " ") : "",
                      pipeline_->Missing());
}

void GpuExecution::OnStopAsked() {
  CHECK(state_ == State::kFailed);
  state_ = State::kStopping;
  // Nothing uses its buffers, so its report need not wait for the communicator's end.
  if (!is_under_way()) End(State::kOver);
}

void GpuExecution::OnCommunicatorEnding(CommunicatorState communicator, const absl::Status& cause) {
  if (is_over()) return;
  Fail(absl::UnavailableError(absl::StrCat(
      "the communicator is ", CommunicatorStateName(communicator), ": ", cause.message())));
  // Its owner stops it already, and need not be asked.
  if (state_ == State::kFailed) OnStopAsked();
  // Before that NCCL may put more on the streams, after events that are recorded now.
  if (state_ != State::kStopping || !IsOver(communicator)) return;
  if (communicator == CommunicatorState::kHung || !BeginDraining().ok()) OnEndLimit();
}

// What is queued after the group that was stopped still runs, on staging of undefined contents. So
// tiles and staging are in use until all three streams have passed it.
absl::Status GpuExecution::BeginDraining() {
  state_ = State::kDraining;
  RETURN_IF_ERROR(shared_.end_events.packed->Record(*shared_.pack));
  RETURN_IF_ERROR(shared_.end_events.wired->Record(*shared_.wire));
  return shared_.end_events.unpacked->Record(*shared_.unpack);
}

void GpuExecution::OnEndLimit() {
  Fail(absl::InternalError("the work on the GPU does not end"));
  if (!is_over()) End(State::kHung);
}

void GpuExecution::End(State state) {
  state_ = state;
  const double seconds = SecondsSince(started_);
  // Without an agreement all its time was spent on the way there.
  if (report_.seconds.bind == 0) report_.seconds.bind = seconds;
  report_.seconds.move = seconds - report_.seconds.bind;
  report_.sent_bytes = bytes().sent;
  report_.received_bytes = bytes().received;
  report_.copied_bytes = bytes().copied;
  const GpuBinding& binding = *spec_.binding;
  if (binding.part().destinations().empty()) return;
  if (report_.status.ok()) {
    report_.devices.push_back(binding.Compare());
  } else {
    report_.devices.push_back({.device = binding.device(), .status = report_.status});
  }
}

TaskReport GpuExecution::TakeReport() { return std::move(report_); }

}  // namespace crossmesh
