#include "common/metrics/prometheus/exporter.h"

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"

#include <array>
#include <cstdint>
#include <iterator>
#include <string>
#include <vector>

#include <absl/strings/numbers.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// Of an exporter on 127.0.0.1. What takes longer than 20 s to answer does not count.
UniqueFd Connect(const std::string& address) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(address.substr(address.rfind(':') + 1), &port));
  sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  return fd;
}

TEST(ExporterTest, SilentConnectionsDoNotKeepOthersFromTheMetrics) {
  ASSERT_OK_AND_ASSIGN(const auto exporter, MetricsExporter::Start({}));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(Connect(exporter->address()));
  const UniqueFd speaking = Connect(exporter->address());
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  ASSERT_EQ(send(speaking.get(), request.data(), request.size(), MSG_NOSIGNAL),
            std::ssize(request));
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = recv(speaking.get(), buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  EXPECT_THAT(answer, HasSubstr("crossmesh_build_info"));
}

}  // namespace
}  // namespace crossmesh
