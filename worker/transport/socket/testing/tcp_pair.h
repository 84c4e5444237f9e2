#pragma once

#include "common/base/unique_fd.h"
#include "worker/transport/socket/socket_address.h"

#include <string>

namespace crossmesh {

// A connection from one address of this host to another, which listens; as ConnectFrom. Or the test
// fails.
struct TcpPair {
  TcpPair(const IpEndpoint& from, IpEndpoint to, const std::string& interface = "");

  IpEndpoint at;  // with the port
  UniqueFd listener;
  UniqueFd connected;
  UniqueFd accepted;
};

}  // namespace crossmesh
