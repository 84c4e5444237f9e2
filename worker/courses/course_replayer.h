#pragma once

#include "worker/courses/course_counters.h"
#include "worker/executor/part_replayer.h"

#include <cstdint>
#include <map>
#include <memory>

#include <absl/status/status.h>

namespace crossmesh {

class CourseReplays;
class EventLoop;

// Replays parts with a course in host memory, step by step, and leaves all others to another
// replayer. Confined to the loop; destroyed when that has stopped.
class CourseReplayer final : public PartReplayer {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    PartReplayer& others;
    CourseCounters& counters;
  };

  explicit CourseReplayer(Ports ports);
  ~CourseReplayer() override;
  CourseReplayer(const CourseReplayer&) = delete;
  CourseReplayer& operator=(const CourseReplayer&) = delete;

  // A part with a course has one, of one instance, that keeps its source; buffers have memory for
  // what lies between its steps, and their source and destination tiles lie apart; its plan is
  // below kPlansMax. InvalidArgument otherwise. When an instance fails, all of these replays have
  // failed for that reason.
  absl::Status StartReplays(ReplaySpec spec, ReplayObserver& observer) override;
  void Replay(const ReplayKey& key, int32_t buffer, uint32_t instance) override;
  void ReplaySourceHere(const ReplayKey& key, uint32_t instance) override;
  void StopReplays(const ReplayKey& key, const absl::Status& why, uint32_t next_instance) override;
  const CourseCounters& counters() const { return ports_.counters; }

 private:
  CourseReplays* Find(const ReplayKey& key) const;

  const Ports ports_;
  std::map<ReplayKey, std::unique_ptr<CourseReplays>> replays_;
};

}  // namespace crossmesh
