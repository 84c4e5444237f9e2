#pragma once

#include "worker/executor/task.h"
#include "worker/transport/transport.h"

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
  // To workers of this name: more than one when it has been started anew.
  std::vector<PeerId> ConnectionsTo(absl::string_view worker) const;
  void Forget(PeerId peer);

 private:
  struct Connection {
    TaskPeer peer;
    PeerId id;
  };
  std::vector<Connection> connections_;
};

}  // namespace crossmesh
