#include "worker/transport/socket/testing/tcp_pair.h"

#include "common/testing/status_matchers.h"
#include "worker/transport/socket/tcp_socket.h"

#include <utility>

#include <gtest/gtest.h>
#include <poll.h>

namespace crossmesh {

TcpPair::TcpPair(const IpEndpoint& from, IpEndpoint to, const std::string& interface) {
  auto made = ListenAt(to);
  EXPECT_OK(made);
  listener = *std::move(made);
  at = to;
  auto connecting = ConnectFrom(from, to, interface);
  EXPECT_OK(connecting);
  connected = *std::move(connecting);
  pollfd wait = {.fd = listener.get(), .events = POLLIN};
  EXPECT_EQ(poll(&wait, 1, 30'000), 1);
  accepted = AcceptAt(listener.get());
  EXPECT_TRUE(accepted.valid());
}

}  // namespace crossmesh
