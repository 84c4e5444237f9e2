#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "worker/arena_lender.h"
#include "worker/courses/course_task_runner.h"
#include "worker/data_transport.h"
#include "worker/executor/executor.h"
#include "worker/executor/task.h"
#include "worker/memory/arena.h"
#include "worker/memory/reused_arenas.h"
#include "worker/transport/transport.h"

#include <cstdint>
#include <memory>
#include <string>

namespace crossmesh {

// What moves and reduces a worker's bytes, as a worker has it: the data loop with the transport,
// the executor and the runner of courses over it, and the loop where memory is freed. Aborts when
// anything goes wrong.
class CollectiveWorker {
 public:
  explicit CollectiveWorker(const DataTransportOptions& options);
  ~CollectiveWorker();

  const std::string& address() const { return transport_->address(); }
  // Lent to the transport.
  std::shared_ptr<Arena> MakeArena(int64_t bytes);
  // Returns when the task is over.
  TaskReport Run(TaskSpec spec);

 private:
  const RealClock clock_;
  ArenaLender lender_;
  ReusedArenas kept_arrays_{ByteCount(int64_t{256} << 20)};
  std::unique_ptr<EventLoop> memory_;
  std::unique_ptr<EventLoop> data_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;
  CourseCounters counters_;
  std::unique_ptr<CourseTaskRunner> runner_;
};

}  // namespace crossmesh
