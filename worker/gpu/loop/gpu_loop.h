#pragma once

#include "common/base/byte_count.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/communicators/nccl_communicator.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/m2n_api.h"
#include "worker/gpu/libraries/nccl_api.h"
#include "worker/gpu/protocol/message_socket.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

class CommunicatorOrders;
class CommunicatorTable;
class Gpu;
class GpuArenas;
class GpuMeasurement;
class GpuTasks;
class M2nRuntime;
class RegisteredStaging;
class TileCopies;

// One GPU at the service of a worker: owns it with its libraries, arenas, communicators, tasks,
// copies and measurements, and carries out what comes through a socket, on an event loop whose
// thread issues all work of the GPU. The program crossmesh-gpu is one; a process that embeds a
// worker can run it on a thread of its own.
//
// It is over when the worker has gone, or when it can do nothing more: the GPU is lost to this
// process, a communicator hangs, NCCL M2N has failed and no task runs, the worker sent bytes that
// are no request, or has gone in the middle of a task. In the second case it has told its last
// words, and must not be destroyed, since that may wait for what never ends: the process is to end.
// Confined to the loop, construction and destruction included.
class GpuLoop {
 public:
  struct Options {
    std::string gpu;  // its UUID
    uint64_t incarnation = 0;
    DriverApi::Options driver;
    NcclApi::Options nccl;
    M2nApi::Options m2n;
    ByteCount staging_bytes{int64_t{256} << 20};
    absl::Duration communicator_end_limit = absl::Seconds(20);
    CtaLimits communicator_ctas = {};
    std::optional<v1::GpuHardware> hardware = std::nullopt;  // for its hello
  };

  // Loads the libraries, takes the GPU, and says hello. FailedPrecondition without driver or NCCL,
  // NotFound without such a GPU, ResourceExhausted; the error was told as last words. Takes
  // seconds. `loop` and `clock` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuLoop>> Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options);
  ~GpuLoop();
  GpuLoop(const GpuLoop&) = delete;
  GpuLoop& operator=(const GpuLoop&) = delete;

  bool is_over() const { return is_over_; }
  // Why; OK when the worker has gone, and nothing runs.
  const absl::Status& end() const { return end_; }

 private:
  using Result = absl::StatusOr<v1::GpuNotice::Answer>;  // what an answer says beside its status

  GpuLoop(EventLoop& loop, const Clock& clock, Options options);

  absl::Status Open();
  absl::Status OpenLibraries();
  void OpenCommunicators();

  void OnMessage(absl::string_view bytes, UniqueFd descriptor);
  void OnClosed(const absl::Status& why);

  // Replies once, from inside or when Look has seen the end. A request that says what it must not
  // is answered with InvalidArgument.
  void CarryOut(const v1::GpuRequest& request, UniqueFd descriptor);
  Result MintCommunicatorId() const;
  // What the process has now.
  Result TakePreflight() const;
  void Cancel(const v1::GpuRequest::CancelTask& request);
  // One of the two has the GPU: a measurement, or tasks and copies.
  void Measure(uint64_t id, const v1::MeasureGpuRequest& request);
  void RunTask(const v1::GpuRequest& request);
  // Whether what runs uses memory until the process ends, or its peers have answered.
  bool is_working() const;

  // To the request with this id.
  void Reply(uint64_t id, Result result);
  // CreateArena's has memory.
  void Reply(uint64_t id, const absl::Status& status, v1::GpuNotice::Answer answer = {},
             UniqueFd memory = UniqueFd());
  void Say(const v1::GpuNotice& notice, UniqueFd descriptor = UniqueFd());
  // Tells the last words.
  void End(const absl::Status& why);

  // Looks at what goes on by itself, soon, and as often as is useful.
  void LookSoon();
  void Look();
  absl::Status Poll();
  // Not OK: the process can do nothing more.
  absl::Status health() const;
  // Whether Poll is expected to see something soon.
  bool is_busy() const;
  // Whether there is nothing that may change by itself.
  bool is_idle() const;

  EventLoop& loop_;
  const Clock& clock_;
  const Options options_;
  bool has_worker_gone_ = false;
  bool is_over_ = false;
  absl::Status end_;
  bool is_look_near_ = false;
  TimerId next_look_;
  std::unique_ptr<MessageSocket> socket_;

  // In this order: what uses something goes before it.
  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<const NcclApi> nccl_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<GpuArenas> arenas_;
  std::unique_ptr<M2nRuntime> m2n_;
  std::unique_ptr<CommunicatorTable> communicators_;
  std::unique_ptr<CommunicatorOrders> orders_;
  std::unique_ptr<GpuTasks> tasks_;
  std::unique_ptr<TileCopies> copies_;
  std::unique_ptr<GpuMeasurement> measurement_;
};

}  // namespace crossmesh
