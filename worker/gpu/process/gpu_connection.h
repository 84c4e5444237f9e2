#pragma once

#include "common/base/unique_fd.h"
#include "common/communicators/preflight_report.h"
#include "common/event_loop/event_loop.h"
#include "worker/gpu/protocol/gpu_notice.h"
#include "worker/gpu/protocol/gpu_request.h"
#include "worker/gpu/protocol/message_socket.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include <absl/functional/any_invocable.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <absl/time/time.h>

namespace crossmesh {

// A worker's end of the socket to the process of a GPU: calls with their answers and limits, and
// pings. A process that is late, or says what it must not, is lost. Confined to the loop.
class GpuConnection final : private MessageSocket::Sink {
 public:
  struct Options {
    RankName rank;  // whom to expect
    absl::Duration start_limit;
    absl::Duration ping_interval;
    absl::Duration ping_limit;
  };
  struct Reply {
    GpuNotice::Answer::Result result;
    UniqueFd descriptor;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reply>)>;

  // Called from the loop, never from inside Call. The connection may not be destroyed there.
  class Listener {
   public:
    virtual ~Listener() = default;
    virtual void OnHello(const PreflightReport& preflight) = 0;
    virtual void OnTaskProgress(const GpuNotice::TaskProgress& progress) = 0;
    virtual void OnCommunicatorLost(const GpuNotice::CommunicatorLost& lost) = 0;
    // The last call. The calls that were open have ended, with Unavailable.
    virtual void OnLost(const absl::Status& why) = 0;
  };

  // `loop` and `listener` must outlive it. ResourceExhausted: no descriptors left.
  static absl::StatusOr<std::unique_ptr<GpuConnection>> Create(EventLoop& loop, UniqueFd socket,
                                                               Options options, Listener& listener);
  // Calls that are open end without a word.
  ~GpuConnection() override;
  GpuConnection(const GpuConnection&) = delete;
  GpuConnection& operator=(const GpuConnection&) = delete;

  // Asks the process, which has `limit` to answer. `done` is called once, from the loop: with the
  // answer, the process's error, or Unavailable when it is lost.
  void Call(GpuRequest::Body body, UniqueFd descriptor, absl::Duration limit, Done done);

  // Has nothing to do with the process any more, because of `why`; nothing happens when it is lost.
  void Lose(const absl::Status& why);

  // Tells nobody anything any more, and the process that it is to end. Repeatable.
  void Close();

 private:
  // What comes with an answer that is OK.
  struct Expected {
    size_t result = 0;  // index of GpuNotice::Answer::Result
    bool descriptor = false;
  };
  struct OpenCall {
    absl::string_view name;
    Expected expected;
    TimerId limit;
    Done done;
  };

  GpuConnection(EventLoop& loop, Options options, Listener& listener);

  static Expected ExpectedOf(const GpuRequest::Body& body);

  // MessageSocket::Sink
  void OnMessage(std::string bytes, UniqueFd descriptor) override;
  void OnClosed(const absl::Status& why) override;

  absl::Status On(const GpuNotice::Hello& hello);
  absl::Status On(GpuNotice::Answer& answer, UniqueFd descriptor);
  absl::Status Handle(GpuNotice notice, UniqueFd descriptor);
  void Ping();
  // With the GPU's name.
  absl::Status About(const absl::Status& status) const;

  EventLoop& loop_;
  const Options options_;
  Listener& listener_;
  std::unique_ptr<MessageSocket> socket_;
  TimerId next_ping_;  // before the hello: its limit
  bool has_hello_ = false;
  bool is_over_ = false;
  uint64_t last_id_ = 0;
  std::map<uint64_t, OpenCall> calls_;
};

}  // namespace crossmesh
