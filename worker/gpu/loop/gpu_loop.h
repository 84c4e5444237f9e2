#pragma once

#include "common/base/byte_count.h"
#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "worker/gpu/communicators/communicator_table.h"
#include "worker/gpu/communicators/registered_staging.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/libraries/driver_api.h"
#include "worker/gpu/libraries/nccl_api.h"
#include "worker/gpu/loop/communicator_orders.h"
#include "worker/gpu/loop/gpu_arenas.h"
#include "worker/gpu/loop/gpu_tasks.h"
#include "worker/gpu/loop/tile_copies.h"
#include "worker/gpu/protocol/gpu_notice.h"
#include "worker/gpu/protocol/gpu_request.h"
#include "worker/gpu/protocol/message_socket.h"

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/time/time.h>

namespace crossmesh {

// One GPU at the service of a worker: does what comes through a socket, on an event loop whose
// thread issues all work of the GPU. The program crossmesh-gpu is one; a process that embeds a
// worker can run it on a thread of its own.
//
// It is over when the worker has gone, or when it can do nothing more: the GPU is lost to this
// process, a communicator hangs, the worker said what it must not, or has gone in the middle of a
// task. In the second case it has told its last words, and must not be destroyed, since that may
// wait for what never ends: the process is to end. Confined to the loop, construction and
// destruction included.
class GpuLoop final : private MessageSocket::Sink,
                      private CommunicatorOrders::Listener,
                      private GpuTasks::Listener {
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

  // Loads the libraries, takes the GPU, and says hello. The error, which was told as last words:
  // FailedPrecondition without driver or NCCL, NotFound without such a GPU, ResourceExhausted.
  // Takes seconds. `loop` and `clock` must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuLoop>> Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options);
  ~GpuLoop() override;
  GpuLoop(const GpuLoop&) = delete;
  GpuLoop& operator=(const GpuLoop&) = delete;

  bool is_over() const { return is_over_; }
  // Why; OK when the worker has gone, and nothing runs.
  const absl::Status& end() const { return end_; }

 private:
  GpuLoop(EventLoop& loop, const Clock& clock, Options options);

  absl::Status Open();
  absl::Status OpenLibraries();
  absl::Status SayHello();

  // MessageSocket::Sink
  void OnMessage(std::string bytes, UniqueFd descriptor) override;
  void OnClosed(const absl::Status& why) override;

  // CommunicatorOrders::Listener
  void OnCommunicatorMade(uint64_t request, int64_t bytes) override;
  void OnCommunicatorGone(uint64_t request, const absl::Status& status) override;
  void OnCommunicatorLost(const CommunicatorKey& key, const absl::Status& cause) override;
  void OnCommunicatorHung(const CommunicatorKey& key, const absl::Status& cause) override;
  void OnCommunicatorChange(const Communicator& communicator, CommunicatorState state,
                            const absl::Status& cause) override;

  // GpuTasks::Listener
  void OnTaskDone(uint64_t request, const TaskReport& report) override;

  // OK when the request is answered, or will be.
  absl::Status Handle(uint64_t id, const GpuRequest::CreateArena& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::ImportArena& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::ReleaseArena& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::MintCommunicatorId& request,
                      UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::CreateCommunicator& request,
                      UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::DestroyCommunicator& request,
                      UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::StopCommunicator& request,
                      UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::PreparePart& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::RunTask& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::CopyTiles& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::CancelTask& request, UniqueFd descriptor);
  absl::Status Handle(uint64_t id, const GpuRequest::Ping& request, UniqueFd descriptor);

  void Answer(GpuNotice::Answer answer, UniqueFd descriptor = UniqueFd());
  void Say(GpuNotice::Body body, UniqueFd descriptor = UniqueFd());
  // Tells the last words.
  void End(const absl::Status& why);

  // Looks at what goes on by itself, soon, and as often as is useful.
  void LookSoon();
  void Look();
  absl::Status AnswerFilledArenas();
  absl::Status AnswerEndedCopies();
  absl::Status Health() const;

  EventLoop& loop_;
  const Clock& clock_;
  const Options options_;
  bool has_worker_gone_ = false;
  bool is_over_ = false;
  absl::Status end_;
  TimerId next_look_;

  std::unique_ptr<MessageSocket> socket_;
  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<const NcclApi> nccl_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<RegisteredStaging> staging_;
  std::unique_ptr<GpuArenas> arenas_;
  std::unique_ptr<CommunicatorTable> communicators_;
  std::unique_ptr<CommunicatorOrders> orders_;
  std::unique_ptr<GpuTasks> tasks_;
  std::unique_ptr<TileCopies> copies_;
  std::map<ArenaId, uint64_t> filling_;  // requests of arenas that are filled with zeros
};

}  // namespace crossmesh
