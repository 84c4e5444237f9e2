#include "common/metrics/prometheus/web_server.h"

#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Ask(int port, const std::string& request) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
  name.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  const std::string text = request + "\r\n\r\n";
  EXPECT_EQ(send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL), std::ssize(text));
  std::string answer;
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0;) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  return answer;
}

TEST(WebServerTest, APageIsMadeForEveryRequestWithItsCode) {
  ASSERT_OK_AND_ASSIGN(const auto server, WebServer::Start("127.0.0.1:0"));
  std::atomic<bool> is_good = true;
  server->Serve("/livez", [&] {
    return is_good ? WebServer::Page{.text = "alive\n"}
                   : WebServer::Page{.code = 503, .text = "data loop: silent\n"};
  });
  EXPECT_THAT(Ask(server->port(), "GET /livez HTTP/1.0"),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\n"), EndsWith("\r\n\r\nalive\n")));
  is_good = false;
  EXPECT_THAT(
      Ask(server->port(), "GET /livez?verbose HTTP/1.1\r\nHost: x"),
      AllOf(StartsWith("HTTP/1.1 503 Service Unavailable\r\n"), EndsWith("data loop: silent\n")));
}

TEST(WebServerTest, OnlyWhatIsThereIsServed) {
  ASSERT_OK_AND_ASSIGN(const auto server, WebServer::Start("127.0.0.1:0"));
  server->Serve("/livez", [] { return WebServer::Page{.text = "alive\n"}; });
  for (const char* path : {"/", "/livez/more", "/livezz", "/metrics"}) {
    EXPECT_THAT(Ask(server->port(), absl::StrCat("GET ", path, " HTTP/1.0")), HasSubstr(" 404 "))
        << path;
  }
  EXPECT_THAT(Ask(server->port(), "POST /livez HTTP/1.0\r\nContent-Length: 0"), HasSubstr(" 405 "));
  EXPECT_THAT(Ask(server->port(), "HEAD /livez HTTP/1.0"),
              AllOf(HasSubstr("Content-Length: 6"), EndsWith("\r\n\r\n")));
}

TEST(WebServerTest, APortThatIsTakenIsRefused) {
  ASSERT_OK_AND_ASSIGN(const auto server, WebServer::Start("127.0.0.1:0"));
  EXPECT_EQ(WebServer::Start(absl::StrCat("127.0.0.1:", server->port())).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace crossmesh
