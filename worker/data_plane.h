#pragma once

#include "common/metrics/label_set.h"
#include "worker/courses/course_counters.h"

#include <cstdint>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class BridgedTaskRunner;
class CountedCourseRunner;
class CourseReplayer;
class CourseTaskRunner;
class Clock;
class EventLoop;
class Executor;
class GpuTaskRunner;
class MixedTaskRunner;
class PartReplayer;
class TaskTable;
class Transport;
class WorkerDevices;
class WorkerMetrics;
struct DataTransportOptions;
struct ExecutorOptions;

// What moves a worker's bytes: its transport, the executor over it, and the tasks that both serve.
// Thread-compatible; destroyed when the loops have stopped.
class DataPlane {
 public:
  // All outlive it.
  struct Ports {
    EventLoop& control;
    EventLoop& data;
    const Clock& clock;
    WorkerMetrics& metrics;
  };

  // Before the loops start; as CheckDataExposure, MakeDataTransport and Executor::Attach say.
  static absl::StatusOr<std::unique_ptr<DataPlane>> Create(const Ports& ports,
                                                           const DataTransportOptions& transport,
                                                           const ExecutorOptions& executor);
  ~DataPlane();

  struct TaskOptions {
    std::string worker;
    std::string state_folder;  // as WorkerOptions says
  };
  // Tasks of devices that are open, and outlive this; from now on counters are brought to the
  // metrics. What EpochFence::Open says.
  absl::Status OpenTasks(const TaskOptions& options, WorkerDevices& devices);
  // Takes no more tasks, waits up to `drain_timeout` until what runs has ended and is acknowledged,
  // and cancels the rest.
  void FinishTasks(absl::Duration drain_timeout);

  Transport& transport() { return *transport_; }
  PartReplayer& replayer();
  TaskTable& tasks() { return *tasks_; }

 private:
  class Sampler;

  DataPlane(const Ports& ports, int64_t staging_bytes);

  const Ports ports_;
  const int64_t staging_bytes_;
  TransportLink link_{};  // the fastest that connects this worker to others
  std::string worker_;

  // In this order so that memory outlives all that could still write it.
  std::unique_ptr<BridgedTaskRunner> bridge_;  // has memory that the executor uses
  std::unique_ptr<TaskTable> tasks_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;  // holds messages of the transport
  CourseCounters courses_;              // of the three below
  std::unique_ptr<CourseTaskRunner> course_runner_;
  std::unique_ptr<GpuTaskRunner> gpu_runner_;
  std::unique_ptr<CountedCourseRunner> counted_runner_;
  std::unique_ptr<MixedTaskRunner> mixed_runner_;
  std::unique_ptr<CourseReplayer> course_replayer_;
  std::unique_ptr<Sampler> sampler_;
};

}  // namespace crossmesh
