// What status and top show, wide and narrow, and top in a terminal of its own.

#include "client/cli/status_report.h"
#include "client/cli/testing/program_run.h"
#include "client/cli/top_frame.h"
#include "client/testing/answers.h"
#include "common/base/unique_fd.h"
#include "common/rpc/server.h"
#include "common/testing/paths.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/controller_service.grpc.pb.h"
#include "crossmesh/v1/network_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/pipeline_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr size_t kShownMax = 1 << 20;  // in which what is waited for comes
constexpr int64_t kNow = 1'800'000'000;

v1::Operation MakeOperation(int number, v1::OperationState state, int64_t moved) {
  v1::Operation operation;
  operation.set_id(absl::StrCat("op-000000000000000", number));
  operation.set_state(state);
  operation.set_moved_bytes(moved);
  operation.set_total_bytes(10'000'000'000);
  operation.mutable_create_time()->set_seconds(kNow - 100);
  operation.mutable_end_time()->set_seconds(kNow - number);
  if (state == v1::OPERATION_STATE_FAILED) operation.set_error("worker \"b\" is\x1b[2Jlost");
  return operation;
}

// `look` times two seconds after the first look: everything has moved on.
ClusterView MakeView(int64_t look) {
  ClusterView view = {.taken = absl::Seconds(2 * look), .address = "127.0.0.1:7400"};
  v1::Controller& controller = view.controller;
  controller.set_version("0.2.0");
  controller.set_epoch(42);
  controller.add_addresses("127.0.0.1:7400");
  controller.mutable_time()->set_seconds(kNow + 2 * look);
  controller.mutable_start_time()->set_seconds(kNow - 7300);
  controller.set_meshes(3);
  controller.set_manifests(1);
  controller.mutable_store()->set_kind("sqlite");
  controller.mutable_store()->set_revision(4711);
  controller.mutable_store()->set_database_bytes(12'300'000);
  controller.mutable_store()->set_free_bytes(40'200'000'000);
  controller.mutable_store()->mutable_backup_time()->set_seconds(kNow - 300);
  view.network.set_revision(3);
  v1::Host& host = *view.network.mutable_topology()->add_hosts();
  host.set_name("a");
  v1::Nic& nic = *host.add_nics();
  nic.set_name("eth0");
  nic.set_out_bytes_per_second(2'000'000'000);
  nic.set_in_bytes_per_second(4'000'000'000);
  for (const char* name : {"a", "b"}) {
    v1::Worker& worker = view.workers.emplace_back();
    worker.set_name(name);
    worker.set_devices(absl::StrCat(name, ".0-3"));
    worker.set_state(name[0] == 'a' ? v1::WORKER_STATE_READY : v1::WORKER_STATE_LOST);
    worker.set_memory_bytes(5'000'000'000);
    worker.mutable_last_heartbeat_time()->set_seconds(kNow + 2 * look);
    v1::InterfaceTraffic& traffic = *worker.add_traffic();
    traffic.set_interface("eth0");
    traffic.set_sent_bytes(2'000'000'000 * look);
    traffic.set_received_bytes(6'000'000'000 * look);
  }
  view.operations = {
      MakeOperation(1, v1::OPERATION_STATE_RUNNING, 1'000'000'000 + 1'000'000'000 * look),
      MakeOperation(2, v1::OPERATION_STATE_FAILED, 7),
      MakeOperation(3, v1::OPERATION_STATE_COMMITTED, 10'000'000'000)};
  return view;
}

std::string FrameText(const TopFrame& frame, const ScreenSize& size) {
  return absl::StrJoin(frame.Lines(size), "\n") + "\n";
}

TEST(StatusTest, AClusterIsOnOneScreen) {
  const std::string text = StatusText(MakeView(0));
  ExpectGolden("status.txt", text);
  EXPECT_LE(std::ranges::count(text, '\n'), 24);
}

TEST(StatusTest, AnEmptyClusterHasNoTables) {
  ClusterView view;
  view.controller.mutable_store()->set_kind("memory");
  const std::string text = StatusText(view);
  EXPECT_THAT(text, AllOf(HasSubstr("workers       none\n"), HasSubstr("network assumed"),
                          Not(HasSubstr("RUNNING")), Not(HasSubstr("FAILED"))));
}

TEST(TopTest, WideAndNarrowScreensShowTheSame) {
  TopFrame frame;
  frame.Update(MakeView(0));
  frame.Update(MakeView(1));
  ExpectGolden("top_wide.txt", FrameText(frame, {.columns = 140, .lines = 50}));
  ExpectGolden("top_narrow.txt", FrameText(frame, {.columns = 60, .lines = 16}));
}

TEST(TopTest, RatesAreOfWhatGrowsBetweenLooks) {
  TopFrame frame;
  frame.Update(MakeView(0));
  EXPECT_THAT(FrameText(frame, {.columns = 90, .lines = 50}), Not(HasSubstr("GB/s")));
  frame.Update(MakeView(1));
  // Of 2 GB/s and 4 GB/s as the network says, and not of the host of which it says nothing.
  EXPECT_THAT(
      FrameText(frame, {.columns = 90, .lines = 50}),
      AllOf(HasSubstr("1.0 GB/s         50 %  3.0 GB/s         75 %"), HasSubstr("500.0 MB/s")));
}

// However large or small it is, a screen is never overrun.
TEST(TopTest, AFrameFitsItsScreen) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  for (int i = 0; i < 300; ++i) {
    TopFrame frame;
    ClusterView view = MakeView(0);
    for (uint64_t more = random() % 40; more > 0; --more) view.workers.push_back(view.workers[0]);
    for (uint64_t more = random() % 40; more > 0; --more) {
      view.operations.push_back(view.operations[random() % 3]);
    }
    frame.Update(view);
    if (random() % 4 == 0) frame.SetAway(absl::UnavailableError("away\n\x1b[2J"));
    const ScreenSize size = {.columns = static_cast<int>(random() % 200),
                             .lines = static_cast<int>(random() % 60)};
    const std::vector<std::string> lines = frame.Lines(size);
    ASSERT_LE(std::ssize(lines), size.lines);
    for (const std::string& line : lines) {
      ASSERT_LE(std::ssize(line), size.columns);
      ASSERT_EQ(line.find_first_of("\x1b\n"), std::string::npos) << line;
    }
  }
}

TEST(TopTest, WhatDoesNotFitIsCounted) {
  TopFrame frame;
  ClusterView view = MakeView(0);
  view.workers.resize(1);
  view.operations.clear();
  view.workers.front().clear_traffic();
  for (int i = 0; i < 29; ++i) view.workers.push_back(view.workers[0]);
  frame.Update(view);
  const std::vector<std::string> lines = frame.Lines({.columns = 80, .lines = 12});
  ASSERT_EQ(lines.size(), 12);
  // Two lines of the whole, an empty one, a header, and seven workers.
  EXPECT_EQ(lines.back(), "and 23 more");
}

TEST(RateWindowTest, ARateIsOfTheLastSeconds) {
  RateWindow window;
  EXPECT_FALSE(window.per_second().has_value());
  window.Add(absl::Seconds(1), 100);
  EXPECT_FALSE(window.per_second().has_value());
  window.Add(absl::Seconds(3), 300);
  EXPECT_DOUBLE_EQ(*window.per_second(), 100);
  window.Add(absl::Seconds(3), 900);  // not a new time
  EXPECT_DOUBLE_EQ(*window.per_second(), 100);
  for (int i = 4; i < 40; ++i) window.Add(absl::Seconds(i), 300 + 10 * i);
  EXPECT_DOUBLE_EQ(*window.per_second(), 10);
  window.Add(absl::Seconds(41), 5);  // it began again
  EXPECT_FALSE(window.per_second().has_value());
}

// A controller with what MakeView has, look after look.
class PlayedCluster final : public v1::ControllerService::CallbackService {
 public:
  int looks() const { return looks_; }
  ClusterView view() const { return MakeView(std::max(looks() - 1, 0)); }

  grpc::ServerUnaryReactor* GetController(grpc::CallbackServerContext* context,
                                          const v1::GetControllerRequest* /*request*/,
                                          v1::GetControllerResponse* response) override {
    ++looks_;
    *response->mutable_controller() = view().controller;
    return Answer(context);
  }

 private:
  std::atomic<int> looks_ = 0;
};

struct NetworkOfCluster final : v1::NetworkService::CallbackService {
  explicit NetworkOfCluster(const PlayedCluster& played) : cluster(played) {}
  grpc::ServerUnaryReactor* GetNetwork(grpc::CallbackServerContext* context,
                                       const v1::GetNetworkRequest* /*request*/,
                                       v1::GetNetworkResponse* response) override {
    *response->mutable_network() = cluster.view().network;
    return Answer(context);
  }
  const PlayedCluster& cluster;
};
struct WorkersOfCluster final : v1::WorkerService::CallbackService {
  explicit WorkersOfCluster(const PlayedCluster& played) : cluster(played) {}
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* /*request*/,
                                        v1::ListWorkersResponse* response) override {
    for (const v1::Worker& worker : cluster.view().workers) *response->add_workers() = worker;
    return Answer(context);
  }
  const PlayedCluster& cluster;
};
struct OperationsOfCluster final : v1::OperationService::CallbackService {
  explicit OperationsOfCluster(const PlayedCluster& played) : cluster(played) {}
  grpc::ServerUnaryReactor* ListOperations(grpc::CallbackServerContext* context,
                                           const v1::ListOperationsRequest* /*request*/,
                                           v1::ListOperationsResponse* response) override {
    for (const v1::Operation& one : cluster.view().operations) *response->add_operations() = one;
    return Answer(context);
  }
  const PlayedCluster& cluster;
};
struct PipelinesOfCluster final : v1::PipelineService::CallbackService {
  grpc::ServerUnaryReactor* ListPipelineRuns(grpc::CallbackServerContext* context,
                                             const v1::ListPipelineRunsRequest* /*request*/,
                                             v1::ListPipelineRunsResponse* /*response*/) override {
    return Answer(context);
  }
};

class StatusCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    address_ = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    ASSERT_OK_AND_ASSIGN(server_, RpcServer::Start({.addresses = {address_},
                                                    .services = {&cluster_, &network_, &workers_,
                                                                 &operations_, &pipelines_}}));
  }

  const TemporaryFolder folder_;
  PlayedCluster cluster_;
  NetworkOfCluster network_{cluster_};
  WorkersOfCluster workers_{cluster_};
  OperationsOfCluster operations_{cluster_};
  PipelinesOfCluster pipelines_;
  std::string address_;
  std::unique_ptr<RpcServer> server_;
};

TEST_F(StatusCommandsTest, StatusIsATextOrADocument) {
  const ProgramResult text = Crossmesh("status --controller " + address_);
  EXPECT_EQ(text.exit_status, 0) << text.error;
  EXPECT_THAT(text.out, AllOf(HasSubstr("leads with epoch 42"), Not(HasSubstr("\x1b"))));
  const nlohmann::json document =
      nlohmann::json::parse(Crossmesh("status --json --controller " + address_).out);
  EXPECT_EQ(document["controller"]["epoch"], "42");
  EXPECT_EQ(document["workers"]["READY"], 1);
  EXPECT_EQ(document["running"]["operations"].size(), 1);
  EXPECT_EQ(document["failed"]["operations"].size(), 1);
}

TEST_F(StatusCommandsTest, TopPrintsOneFrameWhereThereIsNoTerminal) {
  const ProgramResult result = RunShell(absl::StrCat(
      "COLUMNS=100 \"$CROSSMESH\" top --once --interval 10ms --controller ", address_));
  EXPECT_EQ(result.exit_status, 0) << result.error;
  EXPECT_THAT(result.out, AllOf(HasSubstr("LINK"), HasSubstr("75 %"), Not(HasSubstr("\x1b"))));
  const ProgramResult live = Crossmesh("top --controller " + address_);
  EXPECT_EQ(live.exit_status, 1);
  EXPECT_THAT(live.error, HasSubstr("--once needs none"));
}

// The program in a terminal of its own.
class TerminalRun {
 public:
  TerminalRun(const std::string& address, const winsize& size) {
    int terminal = -1;
    winsize copy = size;
    const std::string program = ProgramPath("crossmesh");
    child_ = forkpty(&terminal, nullptr, nullptr, &copy);
    if (child_ == 0) {
      setenv("XDG_CONFIG_HOME", "/dev/null", 1);
      execl(program.c_str(), "crossmesh", "top", "--interval", "50ms", "--controller",
            address.c_str(), static_cast<char*>(nullptr));
      _exit(127);
    }
    terminal_.Reset(terminal);
  }
  ~TerminalRun() {
    if (child_ > 0) {
      kill(child_, SIGKILL);
      waitpid(child_, nullptr, 0);
    }
  }
  void Resize(const winsize& size) { ioctl(terminal_.get(), TIOCSWINSZ, &size); }
  void Type(absl::string_view keys) {
    EXPECT_EQ(write(terminal_.get(), keys.data(), keys.size()), std::ssize(keys));
  }
  // What was shown until, and with, `text`; what follows stays for the next time.
  std::string ReadUntil(const std::string& text) {
    while (!absl::StrContains(shown_, text) && shown_.size() < kShownMax) {
      if (!Read()) break;
    }
    const size_t end = shown_.find(text);
    EXPECT_NE(end, std::string::npos) << "waited for " << text << ", was shown " << shown_;
    if (end == std::string::npos) return shown_;
    std::string before = shown_.substr(0, end + text.size());
    shown_.erase(0, end + text.size());
    return before;
  }
  // All that is left, and the exit status.
  std::pair<std::string, int> End() {
    while (Read()) {
    }
    int status = 0;
    waitpid(std::exchange(child_, 0), &status, 0);
    return {shown_, WIFEXITED(status) ? WEXITSTATUS(status) : -1};
  }

 private:
  bool Read() {
    pollfd waiting = {.fd = terminal_.get(), .events = POLLIN};
    std::array<char, 4096> block;
    if (poll(&waiting, 1, /*timeout=*/30'000) != 1) return false;
    const ssize_t size = read(terminal_.get(), block.data(), block.size());
    if (size <= 0) return false;
    shown_.append(block.data(), static_cast<size_t>(size));
    return true;
  }

  UniqueFd terminal_;
  pid_t child_ = 0;
  std::string shown_;
};

TEST_F(StatusCommandsTest, TopRefreshesResizesAndEnds) {
  TerminalRun top(address_, {.ws_row = 30, .ws_col = 120});
  EXPECT_THAT(top.ReadUntil("LINK"), HasSubstr("\x1b[?1049h"));
  // A later look has rates.
  top.ReadUntil("[###########...] 75 %");
  EXPECT_GT(cluster_.looks(), 1);
  // There is no room for bars, nor for more than four lines.
  top.Resize({.ws_row = 4, .ws_col = 40});
  top.ReadUntil("\x1b[J");  // the frame that was under way
  top.ReadUntil("\x1b[J");
  const std::string frame = top.ReadUntil("\x1b[J");
  EXPECT_THAT(frame, Not(HasSubstr("[####")));
  EXPECT_LE(std::ranges::count(frame, '\n'), 3);
  top.Type("xq");
  const auto [rest, status] = top.End();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(rest, HasSubstr("\x1b[?25h\x1b[?1049l"));
}

TEST_F(StatusCommandsTest, TopGoesOnWhileTheControllerIsAway) {
  TerminalRun top(address_, {.ws_row = 30, .ws_col = 120});
  top.ReadUntil("LINK");
  server_->Shutdown(absl::ZeroDuration());
  server_.reset();
  EXPECT_THAT(top.ReadUntil("AWAY: "), HasSubstr("WORKER"));
  top.Type("q");
  EXPECT_EQ(top.End().second, 0);
}

TEST_F(StatusCommandsTest, AnInterruptLeavesTheTerminalAsItWas) {
  TerminalRun top(address_, {.ws_row = 30, .ws_col = 120});
  top.ReadUntil("LINK");
  top.Type("\x03");
  const auto [rest, status] = top.End();
  EXPECT_EQ(status, 0);
  EXPECT_THAT(rest, HasSubstr("\x1b[?1049l"));
}

}  // namespace
}  // namespace crossmesh
