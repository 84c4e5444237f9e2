#pragma once

#include "common/base/digest.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/executor/task.h"
#include "worker/gpu/communicators/communicator_life.h"
#include "worker/gpu/executor/gpu_task.h"
#include "worker/gpu/protocol/tile_place.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

class CommunicatorOrders;
class EventLoop;
class Gpu;
class GpuArenas;
class GpuBinding;
class GpuExecutor;
class GpuMemory;
class PreparedPart;
class RegisteredStaging;
class TileMap;

// Parts of plans, bound to arenas and run: what a worker asks of tasks becomes what the executor
// does. A part that runs again in the same memory is bound already. Confined to the loop.
class GpuTasks final : private TaskObserver, private CommunicatorOwner {
 public:
  // All must outlive it.
  struct Ports {
    EventLoop& loop;
    Gpu& gpu;
    const RegisteredStaging& staging;
    const GpuArenas& arenas;
    CommunicatorOrders& communicators;
    std::function<absl::Status()> check_m2n;  // that NCCL M2N can be used
    std::string m2n_library;                  // for reports of what it moved
    std::vector<std::string> libraries;       // for reports
  };
  static constexpr size_t kPartsMax = 64;

  // Errors of the driver.
  static absl::StatusOr<std::unique_ptr<GpuTasks>> Create(const Ports& ports);
  ~GpuTasks() override;

  // Without an error: the report, when nothing of the task goes on, or NeedPart.
  using Done = absl::AnyInvocable<void(absl::StatusOr<v1::GpuNotice::Answer>)>;
  // `request` has a task. `done` is called once, from inside or from the loop. Keeps the part for
  // other tasks; drops the one that was not used for longest when there are too many.
  // InvalidArgument: the part is not of its digest, or of several devices; a tile has no place in
  // its arena. NotFound: an arena or the communicator is not here. FailedPrecondition: it is NCCL
  // M2N's to move, which cannot be used. What CompiledPart::Create, GpuBinding::Create and
  // GpuExecutor::Start say.
  void Begin(const v1::GpuRequest& request, Done done);
  // Nothing happens when there is no such task.
  void Cancel(const TaskKey& key, const absl::Status& cause);
  // Keeps no bindings to it.
  void Forget(ArenaId arena);

  void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause);
  // Of all tasks that run.
  std::vector<v1::GpuNotice> Progress() const;
  bool is_empty() const { return running_.empty(); }
  // OK, or why nothing can be run any more.
  const absl::Status& health() const;

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
    std::shared_ptr<const Bound> bound;
    uint64_t request = 0;  // its id
    Done done;
  };

  explicit GpuTasks(const Ports& ports);

  // Null when it is neither here nor in the request.
  absl::StatusOr<Part*> PartOf(const v1::GpuRequest::RunTask& task);
  absl::StatusOr<std::shared_ptr<const Bound>> Start(Part& part,
                                                     const v1::GpuRequest::RunTask& task);
  absl::StatusOr<std::shared_ptr<const Bound>> Bind(Part& part,
                                                    const v1::GpuRequest::RunTask& task);
  absl::StatusOr<std::vector<uint64_t>> AddressesOf(const TileMap& tiles, const Places& places,
                                                    Bound& bound) const;
  void DropOldest();

  // TaskObserver
  // The report, which comes right after it, says the same.
  void OnDeviceDone(const TaskKey& /*key*/, const DeviceReport& /*report*/) override {}
  void OnTaskDone(const TaskReport& report) override;
  // CommunicatorOwner
  void StopCommunicator(const Communicator& communicator, const absl::Status& why) override;

  const Ports ports_;
  std::unique_ptr<GpuExecutor> executor_;
  std::map<Digest, Part> parts_;
  uint64_t uses_ = 0;
  std::map<TaskKey, Running> running_;
};

}  // namespace crossmesh
