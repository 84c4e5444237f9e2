#include "worker/executor/peer_table.h"

#include "common/base/status_macros.h"

namespace crossmesh {

absl::StatusOr<PeerId> PeerTable::FindOrConnect(const std::string& address, Transport& transport) {
  for (const Connection& connection : connections_) {
    if (connection.address == address) return connection.id;
  }
  ASSIGN_OR_RETURN(const PeerId id, transport.Connect(address));
  connections_.push_back({address, id});
  return id;
}

void PeerTable::Forget(PeerId peer) {
  std::erase_if(connections_, [&](const Connection& connection) { return connection.id == peer; });
}

}  // namespace crossmesh
