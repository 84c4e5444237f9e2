#pragma once

#include "worker/transport/transport.h"

#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

struct TaskSpec;

// Connections to other workers, shared by tasks and kept until they are lost; one that is needed
// again is made anew. Confined to the loop.
class PeerTable {
 public:
  // By TaskSpec::peers; none where the task exchanges no messages. InvalidArgument when an address
  // is not of the transport; Unavailable as Transport::Connect.
  absl::StatusOr<std::vector<std::optional<PeerId>>> Connect(const TaskSpec& spec,
                                                             Transport& transport);
  void Forget(PeerId peer);

 private:
  struct Connection {
    std::string address;
    PeerId id;
  };

  absl::StatusOr<PeerId> FindOrConnect(const std::string& address, Transport& transport);

  std::vector<Connection> connections_;
};

}  // namespace crossmesh
