#pragma once

#include "common/base/digest.h"
#include "common/event_loop/event_loop.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/task.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/compiler/compiled_part.h"
#include "worker/gpu/executor/gpu_executor.h"
#include "worker/gpu/executor/gpu_task.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/protocol/gpu_notice.h"
#include "worker/gpu/protocol/gpu_request.h"

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// Parts of plans, bound to arenas and run: what a worker asks of tasks becomes what the executor
// does. A part that runs again in the same memory is bound already. Confined to the loop.
class GpuTasks final : private TaskObserver, private CommunicatorOwner {
 public:
  // Called from the loop, never from inside a call of this class.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnTaskDone(uint64_t request, const TaskReport& report) = 0;
  };
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    Gpu& gpu;
    const RegisteredStaging& staging;
    const GpuArenas& arenas;
    CommunicatorOrders& communicators;
    Listener& listener;
  };
  static constexpr size_t kPartsMax = 64;

  // Errors of the driver.
  static absl::StatusOr<std::unique_ptr<GpuTasks>> Create(const Ports& ports);

  // Keeps it for tasks; drops the one that was not used for longest when there are too many.
  // InvalidArgument: it is not of this digest, or no part of one device.
  absl::Status Prepare(const GpuRequest::PreparePart& request);
  // NotFound: the part, an arena or the communicator is not here. InvalidArgument: a tile has no
  // place in its arena. What CompiledPart::Create, GpuBinding::Create and GpuExecutor::Start say.
  absl::Status Begin(uint64_t request, const GpuRequest::RunTask& run);
  // Nothing happens when there is no such task.
  void Cancel(const TaskKey& key, const absl::Status& cause) { executor_->Cancel(key, cause); }
  // Keeps no bindings to it.
  void Forget(ArenaId arena);

  void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause) {
    executor_->OnCommunicatorChange(communicator, state, cause);
  }
  // Of all tasks that run.
  std::vector<GpuNotice::TaskProgress> Progress() const;
  bool is_empty() const { return requests_.empty(); }
  // OK, or why nothing can be run any more.
  const absl::Status& health() const { return executor_->health(); }

 private:
  using Places = std::vector<TilePlace>;
  // With the memory that it is bound to.
  struct Bound {
    bool checksums = true;
    Places sources;
    Places destinations;
    std::vector<std::shared_ptr<const GpuMemory>> memory;
    std::shared_ptr<GpuBinding> binding;
  };
  struct Part {
    std::shared_ptr<const PreparedPart> part;
    std::shared_ptr<const Bound> last;  // null until it has run
    uint64_t used = 0;                  // larger is later
  };
  struct Running {
    uint64_t request = 0;
    std::shared_ptr<const Bound> bound;
  };

  explicit GpuTasks(const Ports& ports) : ports_(ports) {}

  absl::StatusOr<std::shared_ptr<const Bound>> Bind(Part& part, const GpuRequest::RunTask& run);
  absl::StatusOr<std::vector<uint64_t>> AddressesOf(const TileMap& tiles, const Places& places,
                                                    Bound& bound) const;
  void DropOldest();

  // TaskObserver
  // The report, which comes right behind it, says the same.
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& report) override;
  // CommunicatorOwner
  void StopCommunicator(const Communicator& communicator, const absl::Status& why) override {
    ports_.communicators.Stop(communicator, why);
  }

  const Ports ports_;
  std::unique_ptr<GpuExecutor> executor_;
  std::map<Digest, Part> parts_;
  uint64_t uses_ = 0;
  std::map<TaskKey, Running> requests_;
};

}  // namespace crossmesh
