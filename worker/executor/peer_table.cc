#include "worker/executor/peer_table.h"

#include "common/base/status_macros.h"
#include "worker/executor/task.h"
#include "worker/executor/task_check.h"

namespace crossmesh {

absl::StatusOr<std::vector<std::optional<PeerId>>> PeerTable::Connect(const TaskSpec& spec,
                                                                      Transport& transport) {
  const std::vector<bool> needed = NeededPeers(spec);
  std::vector<std::optional<PeerId>> ids(spec.peers.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!needed[i]) continue;
    ASSIGN_OR_RETURN(ids[i], FindOrConnect(spec.peers[i].address, transport));
  }
  return ids;
}

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
