#pragma once

#include "common/base/clock.h"
#include "common/event_loop/event_loop.h"
#include "common/mesh/device.h"
#include "common/plan/plan.h"
#include "worker/data_transport.h"
#include "worker/executor/executor.h"
#include "worker/memory/arena.h"
#include "worker/transport/transport.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace crossmesh {

// What moves a worker's bytes: a loop on a thread of its own, a transport, and the executor.
class BenchmarkWorker {
 public:
  explicit BenchmarkWorker(const DataTransportOptions& options);
  ~BenchmarkWorker() { loop_->Stop(); }

  EventLoop& loop() { return *loop_; }
  Executor& executor() { return *executor_; }
  const std::string& address() const { return transport_->address(); }

 private:
  const RealClock clock_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<Transport> transport_;
  std::unique_ptr<Executor> executor_;
};

// The whole of one tensor from device a.0 to device `to`.
Plan PlanOfOneTensor(const std::string& to, int64_t bytes);

std::shared_ptr<Arena> FilledArena(int64_t bytes, std::byte value);

// A plan of one tensor with one source and one destination device.
struct PlanRun {
  const Plan& plan;
  std::vector<BenchmarkWorker*> workers;
  std::vector<std::vector<DeviceId>> devices_of_worker;
  std::byte* source = nullptr;
  std::byte* destination = nullptr;
  bool checksums = true;
};

// Runs it, and returns when all workers are done. Aborts when anything goes wrong.
void RunPlan(const PlanRun& run);

}  // namespace crossmesh
