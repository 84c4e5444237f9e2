#pragma once

#include "common/base/clock.h"
#include "common/base/unique_fd.h"
#include "common/event_loop/event_loop.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/loop/gpu_requests.h"
#include "worker/gpu/protocol/message_socket.h"

#include <memory>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// One GPU at the service of a worker: carries out what comes through a socket, on an event loop
// whose thread issues all work of the GPU. The program crossmesh-gpu is one; a process that embeds
// a worker can run it on a thread of its own.
//
// It is over when the worker has gone, or when it can do nothing more: the GPU is lost to this
// process, a communicator hangs, the worker sent bytes that are no request, or has gone in the
// middle of a task. In the second case it has told its last words, and must not be destroyed, since
// that may wait for what never ends: the process is to end. Confined to the loop, construction and
// destruction included.
class GpuLoop {
 public:
  using Options = GpuRequests::Options;

  // As GpuRequests::Create; then says hello. The error was told as last words. `loop` and `clock`
  // must outlive it.
  static absl::StatusOr<std::unique_ptr<GpuLoop>> Create(EventLoop& loop, const Clock& clock,
                                                         UniqueFd socket, Options options);
  ~GpuLoop();
  GpuLoop(const GpuLoop&) = delete;
  GpuLoop& operator=(const GpuLoop&) = delete;

  bool is_over() const { return is_over_; }
  // Why; OK when the worker has gone, and nothing runs.
  const absl::Status& end() const { return end_; }

 private:
  explicit GpuLoop(EventLoop& loop) : loop_(loop) {}

  absl::Status Open(const Clock& clock, Options options);

  void OnMessage(absl::string_view bytes, UniqueFd descriptor);
  void OnClosed(const absl::Status& why);

  void Say(const v1::GpuNotice& notice, UniqueFd descriptor = UniqueFd());
  // Tells the last words.
  void End(const absl::Status& why);

  // Looks at what goes on by itself, soon, and as often as is useful.
  void LookSoon();
  void Look();

  EventLoop& loop_;
  bool has_worker_gone_ = false;
  bool is_over_ = false;
  absl::Status end_;
  bool is_look_near_ = false;
  TimerId next_look_;

  std::unique_ptr<MessageSocket> socket_;
  std::unique_ptr<GpuRequests> requests_;
};

}  // namespace crossmesh
