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

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

// What an exporter answers to a GET of `path`.
std::string Get(const MetricsExporter& exporter, const std::string& path) {
  const UniqueFd fd = Connect(exporter.address());
  const std::string request = "GET " + path + " HTTP/1.0\r\n\r\n";
  EXPECT_EQ(send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL), std::ssize(request));
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  return answer;
}

TEST(ExporterTest, SilentConnectionsDoNotKeepOthersFromTheMetrics) {
  ASSERT_OK_AND_ASSIGN(const auto exporter, MetricsExporter::Start({}));
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 12; ++i) silent.push_back(Connect(exporter->address()));
  EXPECT_THAT(Get(*exporter, "/metrics"), HasSubstr("crossmesh_build_info"));
}

TEST(ExporterTest, AProbeThatSaysNoIsUnavailableWithItsReason) {
  ASSERT_OK_AND_ASSIGN(const auto exporter, MetricsExporter::Start({}));
  const std::string paths[] = {"/livez", "/readyz", "/startupz"};
  for (const std::string& refused : paths) {
    const auto answer = [&](const std::string& path) {
      return [&refused, path] {
        return ProbeAnswer{.is_good = path != refused, .reason = "as " + path + " has it"};
      };
    };
    exporter->ServeProbes(
        {.live = answer(paths[0]), .ready = answer(paths[1]), .started = answer(paths[2])});
    for (const std::string& path : paths) {
      EXPECT_THAT(Get(*exporter, path),
                  AllOf(StartsWith(path == refused ? "HTTP/1.1 503 Service Unavailable"
                                                   : "HTTP/1.1 200 OK"),
                        EndsWith("\r\n\r\nas " + path + " has it\n")))
          << refused;
    }
  }
}

}  // namespace
}  // namespace crossmesh
