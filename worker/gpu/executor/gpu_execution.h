#pragma once

#include "worker/executor/stall_counter.h"
#include "worker/executor/task.h"
#include "worker/gpu/executor/agreement_exchange.h"
#include "worker/gpu/executor/execution_resources.h"
#include "worker/gpu/executor/gpu_task.h"
#include "worker/gpu/executor/step_pipeline.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

enum class CommunicatorState : uint8_t;

// One task of a GPU, from its start to the end of all that it put on streams. Confined to the
// thread of the Gpu, which it never makes wait.
//
//   WAITING --Begin--> AGREEING --all senders run the same--> SPLITTING
//   SPLITTING --the communicator has all groups--> MOVING --all steps done--> OVER
//   WAITING --Fail--> OVER
//   AGREEING, SPLITTING, MOVING --failed, cancelled, too late, stalled--> FAILED
//   FAILED --the owner was asked--> STOPPING, or OVER if nothing is on the streams
//   the same, FAILED, STOPPING --the communicator is over--> DRAINING
//   DRAINING --the streams have passed it--> OVER
//   STOPPING, DRAINING --too late--> HUNG
//   any --the GPU's health is gone--> LOST
//
// What is on the streams when an execution fails ends only with the communicator; until then its
// buffers are in use. After HUNG and LOST they are until the process ends.
class GpuExecution {
 public:
  enum class State : uint8_t {
    kWaiting,
    kAgreeing,
    kSplitting,
    kMoving,
    kFailed,
    kStopping,
    kDraining,
    kOver,
    kHung,
    kLost,
  };

  // InvalidArgument when the communicator lacks a rank of a peer, or has another one for this
  // device, or has others beside those of a broadcast group; or the staging is not enough.
  static absl::Status Validate(const GpuTaskSpec& spec, const RegisteredStaging& staging);

  // Of a valid spec. `shared` and `observer` must outlive this.
  GpuExecution(GpuTaskSpec spec, ExecutionResources& shared, TaskObserver& observer);
  GpuExecution(const GpuExecution&) = delete;
  GpuExecution& operator=(const GpuExecution&) = delete;

  State state() const { return state_; }
  // Whether all is said, and nothing changes any more.
  bool is_over() const { return state_ >= State::kOver; }
  // OK, or why it fails.
  const absl::Status& status() const { return report_.status; }
  const GpuTaskSpec& spec() const { return spec_; }
  TaskObserver& observer() const { return observer_; }
  // Of all legs.
  int32_t steps_done() const;
  StepPipeline::Bytes bytes() const;
  // What the last look found of the steps of its leg.
  StepPipeline::Found found() const {
    return pipeline_.has_value() ? pipeline_->found() : StepPipeline::Found();
  }

  // The streams are this execution's from now on.
  void Begin();
  // Does what can be done now. Whether anything was.
  bool Advance();

  // Nothing happens when it has failed already, or is over.
  void Fail(const absl::Status& why);
  void OnDeadline();
  // Four times per stall limit. Whether it stalled.
  bool OnStallRound();
  // The owner of the communicator was asked to stop it; FAILED only.
  void OnStopAsked();
  // It is on its way to an end, or has come to it.
  void OnCommunicatorEnding(CommunicatorState communicator, const absl::Status& cause);
  // It takes too long to end.
  void OnEndLimit();

  // The last call, once it is over.
  TaskReport TakeReport();

 private:
  absl::StatusOr<bool> AdvanceAgreement();
  absl::StatusOr<bool> AdvanceSplits();
  absl::StatusOr<bool> AdvanceLegs();
  // The leg in hand is done.
  void EndLeg();
  absl::StatusOr<bool> AdvanceDraining();
  absl::Status BeginDraining();
  // In one of the states in which it is over.
  void End(State state);
  std::string Missing() const;
  bool is_under_way() const {
    return agreement_.is_under_way() || (pipeline_.has_value() && pipeline_->is_under_way());
  }
  bool is_running() const {
    return state_ == State::kAgreeing || state_ == State::kSplitting || state_ == State::kMoving;
  }

  const GpuTaskSpec spec_;
  ExecutionResources& shared_;
  TaskObserver& observer_;
  const std::chrono::steady_clock::time_point started_;
  State state_ = State::kWaiting;
  AgreementExchange agreement_;
  std::vector<RankGroups> splits_;        // of the binding, in ranks of the communicator
  size_t splits_made_ = 0;                // or there before
  bool is_splitting_ = false;             // the next of them
  size_t leg_ = 0;                        // of the binding's, in hand
  std::optional<StepPipeline> pipeline_;  // of that, once it has begun
  int32_t steps_of_legs_ = 0;             // of those that are done
  StepPipeline::Bytes bytes_of_legs_;
  StallCounter beginning_stall_;  // of the agreement, and of the first step
  StallCounter stall_;            // of later ones
  TaskReport report_;
};

}  // namespace crossmesh
