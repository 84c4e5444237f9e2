#include "worker/executor/peer_table.h"

#include "common/base/status_macros.h"

namespace crossmesh {

absl::StatusOr<PeerId> PeerTable::FindOrConnect(const TaskPeer& peer, Transport& transport) {
  for (const Connection& connection : connections_) {
    if (connection.peer.address == peer.address) return connection.id;
  }
  ASSIGN_OR_RETURN(const PeerId id, transport.Connect(peer.address));
  connections_.push_back({peer, id});
  return id;
}

std::vector<PeerId> PeerTable::ConnectionsTo(absl::string_view worker) const {
  std::vector<PeerId> ids;
  for (const Connection& connection : connections_) {
    if (connection.peer.worker == worker) ids.push_back(connection.id);
  }
  return ids;
}

void PeerTable::Forget(PeerId peer) {
  std::erase_if(connections_, [&](const Connection& connection) { return connection.id == peer; });
}

}  // namespace crossmesh
