#pragma once

#include "worker/executor/task.h"
#include "worker/transport/transport.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Connections to other workers, shared by tasks and kept until they are lost; one that is needed
// again is made anew. Confined to the loop.
class PeerTable {
 public:
  // InvalidArgument when the address is not of the transport.
  absl::StatusOr<PeerId> FindOrConnect(const TaskPeer& peer, Transport& transport);
  // Any connection to a worker of this name.
  std::optional<PeerId> FindWorker(absl::string_view worker) const;
  void Forget(PeerId peer);

 private:
  struct Connection {
    TaskPeer peer;
    PeerId id;
  };
  std::vector<Connection> connections_;
};

}  // namespace crossmesh
