#pragma once

#include "common/base/digest.h"
#include "common/event_loop/timer_id.h"
#include "common/plan/step_kind.h"
#include "worker/courses/course_counters.h"
#include "worker/courses/course_memory.h"
#include "worker/courses/course_places.h"
#include "worker/courses/course_progress.h"
#include "worker/courses/step_reduction.h"
#include "worker/courses/tile_release.h"
#include "worker/executor/replay.h"
#include "worker/executor/task.h"

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include <absl/container/flat_hash_set.h>
#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

class EventLoop;
class ReplayRunner;

// A task whose part has courses: the steps of each are replayed, once for each instance, and what
// they bring is reduced here. When a step of any instance fails, all of the task fails. Confined to
// the loop; destroyed when it is over.
class CourseTask final : public ReplayObserver {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    ReplayRunner& replays;
    CourseCounters& counters;
    TaskObserver& observer;
    ReleaseMemory release;
    // Called last of all, when the observer knows; the task may not be destroyed there.
    std::function<void()> over;
  };

  CourseTask(Ports ports, TaskSpec spec, ArrayMemory memory);
  ~CourseTask() override;

  // Once. An error: nothing runs.
  absl::Status Start();
  // As HostTaskRunner::SourceHere.
  void SourceHere(DeviceRank device);
  void Cancel(const absl::Status& why);
  void LosePeer(absl::string_view worker, const absl::Status& why);
  int64_t moved_bytes() const { return report_.received_bytes + report_.copied_bytes; }

  void OnDeviceDone(const TaskKey& key, const DeviceReport& report) override;
  void OnTaskDone(const TaskReport& report) override;
  void OnPeerStopped(const ReplayKey& key, absl::string_view worker) override;
  void OnReplaysStopped(const ReplayKey& key) override;

 private:
  // One course of the part.
  struct Running {
    Running(const TaskSpec& task, const Course<WorkerPart>& course, const ArrayMemory& memory);

    CourseProgress progress;
    CoursePlaces places;
    std::vector<StepKind> kinds;  // of its steps
    int32_t first_step = 0;       // in a numbering of the steps of all courses
  };
  // What is left of a reduction that has begun.
  struct Work {
    CourseProgress::At at;
    StepReduction reduction;
  };

  absl::Status StartStep(size_t course, int32_t step);
  // In the numbering of the steps of all courses, and back.
  ReplayKey KeyOf(int32_t step) const;
  int32_t StepOf(const TaskKey& key) const;
  // Which of the buffers with which a step was started an instance uses.
  int32_t BufferOf(CourseProgress::At at) const;
  bool HasInstanceBuffers(const Course<WorkerPart>& course, int32_t step) const;
  Running& running() { return *courses_[course_]; }
  const Course<WorkerPart>& course() const;
  void Drive();
  void PostReduction();
  void ReduceSome();
  void EmptyDestinations();
  // Of an instance whose first step has moved, if the course does that.
  absl::Status ReleaseSource(CourseProgress::At moved);
  void Stop(const absl::Status& why);
  void Finish();
  Digest DigestOf(DeviceRank device) const;

  const Ports ports_;
  const TaskSpec spec_;
  const ArrayMemory memory_;
  std::vector<std::unique_ptr<Running>> courses_;
  size_t course_ = 0;    // the one that runs
  int32_t steps_ = 0;    // of all courses
  int32_t started_ = 0;  // of their replays, and not stopped
  absl::flat_hash_set<DeviceRank> awaited_sources_;
  std::deque<Work> reducing_;
  bool is_reducing_ = false;  // the loop will call
  bool is_stopping_ = false;
  absl::Status failure_;  // of devices
  TimerId deadline_;
  std::chrono::steady_clock::time_point begun_;
  TaskReport report_;
  TileRelease tiles_;
  // Of each destination device: by step and instance, what it was to hash to.
  std::map<DeviceRank, std::map<std::pair<int32_t, uint32_t>, Digest>> digests_;
};

}  // namespace crossmesh
