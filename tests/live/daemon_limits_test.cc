// What daemons do not take from each other, and what cannot be taken from them.

#include "client/cli/testing/program_run.h"
#include "client/client.h"
#include "client/memory/memory_client.h"
#include "common/base/testing/resource_limit.h"
#include "common/base/unique_fd.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/live/live_cluster.h"

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

// A connection to a port of 127.0.0.1 that has begun to speak HTTP/2, and never goes on.
UniqueFd ConnectAndStay(uint16_t port) {
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  EXPECT_TRUE(fd.valid()) << "errno " << errno;
  sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  const std::string said =
      "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + std::string("\0\0\0\4\0\0\0\0\0", 9);
  // It may be closed by now.
  static_cast<void>(send(fd.get(), said.data(), said.size(), MSG_NOSIGNAL));
  return fd;
}

class DescriptorsTest : public testing::Test {
 protected:
  // With so many descriptors, whatever the soft limit.
  void StartController(int descriptors) {
    const std::string ready_path = folder_.PathOf("ready");
    auto started = ChildProcess::Start(
        {.program = "/bin/sh",
         .arguments = {"-c", absl::StrCat("ulimit -n ", descriptors, " && exec ",
                                          ProgramPath("crossmesh-controller"), " --listen ",
                                          unix_address(),
                                          " --listen 127.0.0.1:0 --metrics-listen 127.0.0.1:0",
                                          " --ready-file ", ready_path)},
         .log_path = folder_.PathOf("log")});
    ASSERT_OK(started.status());
    controller_.emplace(*std::move(started));
    ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] { return std::filesystem::exists(ready_path); }));
    const nlohmann::json ready =
        nlohmann::json::parse(ReadAll(ready_path), nullptr, /*allow_exceptions=*/false);
    ASSERT_TRUE(ready.is_object());
    tcp_address_ = ready.at("addresses").at(1).get<std::string>();
    metrics_address_ = ready.at("metrics_address").get<std::string>();
  }
  uint16_t port() const {
    int port = 0;
    EXPECT_TRUE(absl::SimpleAtoi(tcp_address_.substr(tcp_address_.rfind(':') + 1), &port));
    return static_cast<uint16_t>(port);
  }
  std::string unix_address() const { return "unix:" + folder_.PathOf("s"); }
  static absl::Status Ask(const std::string& address) {
    absl::StatusOr<Client> client = Client::Connect(address, {});
    return client.ok() ? client->ListWorkers().status() : client.status();
  }

  const TemporaryFolder folder_;
  std::optional<ChildProcess> controller_;
  std::string tcp_address_;
  std::string metrics_address_;
};

TEST_F(DescriptorsTest, ADaemonServesAgainOnceItsDescriptorsAreFree) {
  rlimit own = {};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &own), 0);
  if (own.rlim_max < 2048) GTEST_SKIP() << "2048 descriptors, found " << own.rlim_max;
  const ScopedResourceLimit limit(RLIMIT_NOFILE, own.rlim_max);
  StartController(1024);
  std::vector<UniqueFd> clients;
  for (int i = 0; i < 1100; ++i) clients.push_back(ConnectAndStay(port()));
  // The reserve is for those who are on this machine.
  EXPECT_OK(Ask(unix_address()));
  EXPECT_FALSE(Ask(tcp_address_).ok());
  // What decides whether it is to be restarted asks there.
  EXPECT_OK(HttpGet(metrics_address_, "/metrics").status());
  clients.clear();
  EXPECT_TRUE(WaitUntil(absl::Seconds(10), [&] { return Ask(tcp_address_).ok(); }));
  EXPECT_OK(Ask(unix_address()));
}

TEST_F(DescriptorsTest, ADaemonServesAgainAfterItHadNoDescriptorsAtAll) {
  StartController(1024);
  rlimit before = {};
  // Fewer than it has already, so that not even one connection can be accepted.
  const rlimit none = {.rlim_cur = 3, .rlim_max = 1024};
  ASSERT_EQ(prlimit(controller_->pid(), RLIMIT_NOFILE, &none, &before), 0) << "errno " << errno;
  const UniqueFd waiting = ConnectAndStay(port());
  EXPECT_TRUE(WaitUntil(absl::Seconds(10), [&] {
    return absl::StrContains(ReadAll(folder_.PathOf("log")), "Too many open files");
  }));
  ASSERT_EQ(prlimit(controller_->pid(), RLIMIT_NOFILE, &before, nullptr), 0) << "errno " << errno;
  EXPECT_TRUE(WaitUntil(absl::Seconds(10), [&] { return Ask(tcp_address_).ok(); }));
}

class SecondWorkerTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> worker_flags = {}) {
    auto cluster =
        LiveCluster::Start({.workers = {"node-0"}, .worker_flags = std::move(worker_flags)});
    ASSERT_OK(cluster.status());
    cluster_ = *std::move(cluster);
  }
  ProgramResult RunWorker(const std::string& flags) const {
    return RunShell(absl::StrCat(ProgramPath("crossmesh-worker"), " --name q --controller ",
                                 cluster_->controller_address(), " ", flags, " 2>&1"));
  }

  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(SecondWorkerTest, TakesNoMemorySocketFromOneThatLives) {
  Start();
  const ProgramResult second =
      RunWorker("--devices q.0 --memory-socket " + cluster_->PathOf("node-0.memory"));
  EXPECT_EQ(second.exit_status, 75) << second.out;
  EXPECT_THAT(second.out, HasSubstr("node-0.memory: another server listens there"));
  ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-0"));
  EXPECT_OK(memory.Create("weights", "node-0.0", 100));
}

TEST_F(SecondWorkerTest, TakesNoReadyFileFromOneThatLives) {
  Start();
  const std::string path = cluster_->PathOf("node-0.ready");
  const std::string before = ReadAll(path);
  const ProgramResult second = RunWorker("--devices q.0 --ready-file " + path);
  EXPECT_EQ(second.exit_status, 75) << second.out;
  EXPECT_THAT(second.out, HasSubstr(path));
  EXPECT_EQ(ReadAll(path), before);
  // Nor anything else that is no file of a daemon.
  const std::string pipe = cluster_->PathOf("pipe");
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(RunWorker("--devices q.0 --ready-file " + pipe).exit_status, 75);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
}

TEST_F(SecondWorkerTest, NamesEachOfItsDevicesOnce) {
  Start();
  const ProgramResult result = RunWorker("--devices q.0,q.1,q.0");
  EXPECT_EQ(result.exit_status, 64) << result.out;
  EXPECT_THAT(result.out, HasSubstr("found q.0 twice"));
}

TEST_F(SecondWorkerTest, MemoryHasALimitAndDevicesAreItsOwn) {
  Start({"--memory-max", "40M"});
  ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory("node-0"));
  EXPECT_THAT(memory.Create("weights", "node-0.0", int64_t{9} << 20),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("--memory-max")));
  EXPECT_THAT(memory.Create("weights", "node-1.0", 1),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("found node-1.0")));
  EXPECT_OK(memory.Create("weights", "node-0.0", int64_t{8} << 20));
}

// Of this machine, with an IPv4 address that others may reach.
std::string InterfaceBeyondLoopback() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string found;
  for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    if ((one->ifa_flags & IFF_LOOPBACK) == 0) found = one->ifa_name;
  }
  freeifaddrs(list);
  return found;
}

TEST_F(SecondWorkerTest, ReceivesTensorsBeyondLoopbackOnlyWhenAllowed) {
  const std::string interface = InterfaceBeyondLoopback();
  if (interface.empty()) GTEST_SKIP() << "a network interface, found loopback alone";
  Start();
  const ProgramResult refused = RunWorker("--devices q.0 --data-interface " + interface);
  EXPECT_EQ(refused.exit_status, 64) << refused.out;
  EXPECT_THAT(refused.out, HasSubstr("--trusted-network"));
  const ProgramResult elsewhere =
      RunWorker("--devices q.0 --trusted-network 192.0.2.0/32 --data-interface " + interface);
  EXPECT_EQ(elsewhere.exit_status, 64) << elsewhere.out;
  EXPECT_THAT(elsewhere.out, HasSubstr("192.0.2.0/32"));
}

}  // namespace
}  // namespace crossmesh
