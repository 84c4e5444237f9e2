#pragma once

#include "crossmesh/v1/worker_service.pb.h"

#include <functional>
#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// The worker's end of a session, whatever carries it. Shared by what carries it, until the session
// is over, and by its agent. Called on the agent's loop.
class SessionCall {
 public:
  virtual ~SessionCall() = default;
  virtual void Send(v1::WorkerSessionRequest request) = 0;
  // Tells the controller, after what was sent, that nothing more comes.
  virtual void CloseWrites() = 0;
  // Ends the session at once, with Cancelled. Repeatable.
  virtual void Cancel() = 0;
};

// Opens sessions with controllers.
class SessionCaller {
 public:
  // What is heard of a session, on the agent's loop; its end, once, comes last.
  struct Listener {
    std::function<void(const v1::WorkerSessionResponse&)> on_message;
    std::function<void(const absl::Status&)> on_end;
  };

  virtual ~SessionCaller() = default;
  // InvalidArgument: no address, or one that may not be spoken to.
  virtual absl::Status Check(const std::string& address) = 0;
  // The errors of Check; whether there is a controller only the session says.
  virtual absl::StatusOr<std::shared_ptr<SessionCall>> Open(const std::string& address,
                                                            Listener listener) = 0;
};

}  // namespace crossmesh
