#pragma once

#include "common/plan/step_kind.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/course_places.h"
#include "worker/courses/message_steps.h"
#include "worker/courses/step_reduction.h"
#include "worker/executor/part_replayer.h"
#include "worker/executor/replay.h"
#include "worker/executor/task.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;

// The replays of a part with one course of one instance: a message at a time in each buffer, all
// steps of which are replayed, and reductions between them made here. When a step of any message
// fails, all messages end for that reason, and nothing begins any more. Confined to the loop;
// destroyed when it is over.
class CourseReplays final : public ReplayObserver {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    PartReplayer& steps;
    CourseCounters& counters;
    ReplayObserver& observer;
    // Called last of all; the replays may not be destroyed there.
    std::function<void()> over;
  };

  // InvalidArgument: CheckReplayable, and without buffers or memory for arrays, naming the device.
  static absl::Status Check(const ReplaySpec& spec);

  // Of a spec that is checked.
  CourseReplays(Ports ports, const ReplaySpec& spec);
  ~CourseReplays() override;

  // Once. With an error the observer is told nothing; `over` is called when nothing runs.
  absl::Status Start();
  // As PartReplayer says.
  void Replay(int32_t buffer, uint32_t instance);
  void SourceHere(uint32_t instance);
  void Stop(const absl::Status& why, uint32_t next_instance);

  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;
  void OnPeerStopped(const ReplayKey& key, absl::string_view worker) override;
  void OnReplaysStopped(const ReplayKey& key) override;

 private:
  // A message's memory, and what is known of the one that is there.
  struct Buffer {
    Buffer(TaskSpec task, const Course<WorkerPart>& course,
           const absl::flat_hash_map<DeviceRank, std::byte*>& arrays);

    const TaskSpec task;
    const CoursePlaces places;
    std::vector<std::optional<StepReduction>> reductions;  // [step]
    TaskReport report;
    std::vector<bool> told;  // by destination of the part
  };

  const Course<WorkerPart>& course() const;
  const PreparedPart& part() const { return *buffers_.front()->task.part; }
  int32_t steps() const { return static_cast<int32_t>(course().steps.size()); }
  ReplayKey KeyOf(int32_t step) const;
  absl::Status StartStep(int32_t step);
  // Of the message of this instance, if it is open.
  std::optional<MessageSteps::At> PlaceOf(const TaskKey& key) const;
  void Drive();
  void PostReduction();
  void ReduceSome();
  // Tells of a destination of the part, once.
  void TellDevice(Buffer& buffer, DeviceRank device, const absl::Status& status);
  void TellDone(int32_t buffer, const absl::Status& status);
  void End(const absl::Status& why, uint32_t next_instance);
  void PostSettle();
  // After the end: tells of messages of which nothing moves any more, at last of the end.
  void Settle();

  const Ports ports_;
  const ReplayKey key_;
  const uint32_t first_instance_;
  const std::vector<StepKind> kinds_;  // of steps
  std::vector<std::unique_ptr<Buffer>> buffers_;
  MessageSteps progress_;
  std::vector<int64_t> destination_bytes_;  // by destination of the part
  int64_t array_bytes_ = 0;
  int32_t started_ = 0;                     // replays of steps that are not stopped
  std::vector<MessageSteps::At> reducing_;  // in turn
  bool is_reducing_ = false;                // the loop will call
  std::optional<absl::Status> end_;         // why nothing begins any more
  bool is_silent_ = false;                  // the observer is told nothing
  bool is_stopping_ = false;                // the owner has said so
  bool is_over_ = false;
};

}  // namespace crossmesh
