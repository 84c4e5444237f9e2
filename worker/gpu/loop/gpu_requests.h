#pragma once

#include "common/base/byte_count.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/communicators/preflight_report.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorOrders;
class CommunicatorTable;
class EventLoop;
class Gpu;
class GpuArenas;
class GpuTasks;
class RegisteredStaging;
class TileCopies;

// Carries out requests on one GPU, which it owns with its libraries, arenas, communicators, tasks
// and copies. Confined to the loop, construction and destruction included.
class GpuRequests {
 public:
  struct Options {
    std::string gpu;  // its UUID
    uint64_t incarnation = 0;
    DriverApi::Options driver;
    NcclApi::Options nccl;
    ByteCount staging_bytes{int64_t{256} << 20};
    absl::Duration communicator_end_limit = absl::Seconds(20);
    CtaLimits communicator_ctas = {};
  };
  // Sends an answer, which still lacks the request's id. That to CreateArena has a descriptor.
  using Answer = absl::AnyInvocable<void(v1::GpuNotice::Answer answer, UniqueFd descriptor)>;
  // Says something of the GPU's own accord.
  using Say = absl::AnyInvocable<void(const v1::GpuNotice& notice)>;

  // Loads the libraries and takes the GPU. FailedPrecondition without driver or NCCL, NotFound
  // without such a GPU, ResourceExhausted. Takes seconds. `loop` and `clock` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuRequests>> Create(EventLoop& loop, const Clock& clock,
                                                             Options options, Say say);
  ~GpuRequests();
  GpuRequests(const GpuRequests&) = delete;
  GpuRequests& operator=(const GpuRequests&) = delete;

  // What the process has now.
  absl::StatusOr<PreflightReport> Preflight() const;
  absl::StatusOr<std::string> PciAddress() const;

  // `answer` is called once, from inside or when Poll has seen the end. A request that says what it
  // must not is answered with InvalidArgument.
  void CarryOut(const v1::GpuRequest& request, UniqueFd descriptor, Answer answer);

  // Looks at what goes on by itself. Not OK: the process can do nothing more.
  absl::Status Poll();
  absl::Status health() const;
  // Of all tasks that run.
  std::vector<v1::GpuNotice> Progress() const;

  // Whether Poll is expected to see something soon.
  bool is_busy() const;
  // Whether there is nothing that may change by itself.
  bool is_idle() const;
  // Whether memory is read or written by what nothing here can end.
  bool is_moving() const;
  // Whether memory is being filled with zeros, which ends by itself.
  bool is_filling() const;

 private:
  GpuRequests(EventLoop& loop, const Clock& clock, Options options, Say say);

  absl::Status Open();
  absl::Status OpenLibraries();
  void MintCommunicatorId(Answer answer);
  void AnswerPreflight(Answer answer) const;
  void Cancel(const v1::GpuRequest::CancelTask& request);

  EventLoop& loop_;
  const Clock& clock_;
  const Options options_;
  Say say_;

  // In this order: what uses something goes before it.
  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<const NcclApi> nccl_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<GpuArenas> arenas_;
  std::unique_ptr<CommunicatorTable> communicators_;
  std::unique_ptr<CommunicatorOrders> orders_;
  std::unique_ptr<GpuTasks> tasks_;
  std::unique_ptr<TileCopies> copies_;
};

}  // namespace crossmesh
