#include "worker/transport/socket/testing/ip_of.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>

namespace crossmesh {

IpEndpoint IpOf(const std::string& text) {
  IpEndpoint endpoint;
  if (inet_pton(AF_INET6, text.c_str(), endpoint.ip.data()) == 1) return endpoint;
  endpoint.ip[10] = endpoint.ip[11] = '\xff';
  EXPECT_EQ(inet_pton(AF_INET, text.c_str(), endpoint.ip.data() + 12), 1) << text;
  return endpoint;
}

}  // namespace crossmesh
