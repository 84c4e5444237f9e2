#pragma once

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
  absl::StatusOr<PeerId> FindOrConnect(const std::string& address, Transport& transport);
  void Forget(PeerId peer);

 private:
  struct Connection {
    std::string address;
    PeerId id;
  };
  std::vector<Connection> connections_;
};

}  // namespace crossmesh
