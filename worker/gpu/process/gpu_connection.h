#pragma once

#include "common/base/unique_fd.h"
#include "common/communicators/communicator_key.h"
#include "common/communicators/preflight_report.h"
#include "common/event_loop/event_loop.h"
#include "crossmesh/v1/gpu_process.pb.h"
#include "worker/gpu/protocol/message_socket.h"

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
class GpuConnection {
 public:
  struct Options {
    RankName rank;  // expected in the hello
    absl::Duration start_limit;
    absl::Duration ping_interval;
    absl::Duration ping_limit;
  };
  struct Reply {
    v1::GpuNotice::Answer answer;  // with the result that the request asks for
    UniqueFd descriptor;
  };
  using Done = absl::AnyInvocable<void(absl::StatusOr<Reply>)>;
  // Of a call, from the loop: `progress` any number of times, if it is a task; then `done`, once.
  struct Callbacks {
    Done done;
    absl::AnyInvocable<void(int64_t moved_bytes)> progress = nullptr;
  };

  // Called from the loop, never from inside Call. The connection may not be destroyed there.
  struct Handlers {
    absl::AnyInvocable<void(const PreflightReport& preflight, const v1::GpuNotice::Hello& hello)>
        on_hello;
    // Tasks that use it end by themselves; others find it gone.
    absl::AnyInvocable<void(const CommunicatorKey& key, const absl::Status& why)>
        on_communicator_lost;
    // The last call. The calls that were open have ended, with Unavailable.
    absl::AnyInvocable<void(const absl::Status& why)> on_lost;
  };

  // `loop` must outlive it. ResourceExhausted: no descriptors left.
  static absl::StatusOr<std::unique_ptr<GpuConnection>> Create(EventLoop& loop, UniqueFd socket,
                                                               Options options, Handlers handlers);
  // Calls that are open end without a word.
  ~GpuConnection();
  GpuConnection(const GpuConnection&) = delete;
  GpuConnection& operator=(const GpuConnection&) = delete;

  // Asks the process, which has `limit` to answer; the request gets its id here. It is done with
  // the answer, the process's error, or Unavailable when it is lost.
  void Call(v1::GpuRequest request, UniqueFd descriptor, absl::Duration limit, Callbacks callbacks);

  // Has nothing to do with the process any more, because of `why`; nothing happens when it is lost.
  void Lose(const absl::Status& why);

  // Calls nothing more, and tells the process to end. Repeatable.
  void Close();

 private:
  // What comes with an answer that is OK.
  struct Expected {
    v1::GpuNotice::Answer::ResultCase result = v1::GpuNotice::Answer::RESULT_NOT_SET;
    bool descriptor = false;
    bool need_part = false;  // in the place of the result
  };
  struct OpenCall {
    absl::string_view name;  // of the request
    Expected expected;
    TimerId limit;
    Callbacks callbacks;
  };

  GpuConnection(EventLoop& loop, Options options, Handlers handlers);

  static Expected ExpectedOf(const v1::GpuRequest& request);

  void OnMessage(absl::string_view bytes, UniqueFd descriptor);
  // Not OK: the process said what it must not.
  absl::Status Handle(v1::GpuNotice notice, UniqueFd descriptor);
  absl::Status OnHello(const v1::GpuNotice::Hello& hello);
  absl::Status OnAnswer(v1::GpuNotice::Answer answer, UniqueFd descriptor);
  absl::Status OnProgress(const v1::GpuNotice::TaskProgress& progress);
  absl::Status OnCommunicatorLost(const v1::GpuNotice::CommunicatorLost& lost);
  void Ping();
  // With the GPU's name.
  absl::Status About(const absl::Status& status) const;

  EventLoop& loop_;
  const Options options_;
  Handlers handlers_;
  std::unique_ptr<MessageSocket> socket_;
  TimerId next_ping_;  // before the hello: its limit
  bool has_hello_ = false;
  bool is_over_ = false;
  uint64_t last_id_ = 0;
  std::map<uint64_t, OpenCall> calls_;
};

}  // namespace crossmesh
