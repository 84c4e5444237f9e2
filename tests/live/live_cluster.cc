#include "tests/live/live_cluster.h"

#include "client/cli/cli.h"
#include "client/pause.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/rpc/channel.h"
#include "common/rpc/health_check.h"
#include "common/rpc/not_leader.h"
#include "common/testing/paths.h"
#include "common/testing/send_signal.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kJoinMax = absl::Seconds(30);
constexpr absl::Duration kPollInterval = absl::Milliseconds(2);
constexpr size_t kLogEndBytes = 4000;

absl::StatusOr<UniqueFd> ConnectTcp(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  int port = 0;
  sockaddr_in peer = {};
  peer.sin_family = AF_INET;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[1], &port) ||
      inet_pton(AF_INET, parts[0].c_str(), &peer.sin_addr) != 1) {
    return absl::InvalidArgumentError(absl::StrCat("expected IP:PORT, found ", address));
  }
  peer.sin_port = htons(static_cast<uint16_t>(port));
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&peer), sizeof(peer)) != 0) {
    return absl::UnavailableError(absl::StrCat("connect to ", address));
  }
  return fd;
}

std::string TextFromEnvironment(const char* name) {
  const char* const text = std::getenv(name);
  return text == nullptr ? "" : text;
}

}  // namespace

bool WaitUntil(absl::Duration limit, absl::FunctionRef<bool()> holds) {
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + limit;
  while (!holds()) {
    if (clock.Monotonic() > until) return false;
    Pause(kPollInterval);
  }
  return true;
}

std::string ReleaseBefore() { return TextFromEnvironment("CROSSMESH_RELEASE_BEFORE"); }

absl::StatusOr<std::string> HttpGet(const std::string& address, const std::string& path) {
  ASSIGN_OR_RETURN(const UniqueFd fd, ConnectTcp(address));
  // HTTP/1.0, so that the answer comes in one piece and ends with the connection.
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.0\r\nHost: ", address, "\r\n\r\n");
  if (::send(fd.get(), request.data(), request.size(), MSG_NOSIGNAL) != std::ssize(request)) {
    return absl::UnavailableError(absl::StrCat("send to ", address));
  }
  std::string answer;
  std::array<char, 4096> buffer;
  ssize_t size = 0;
  while ((size = ::recv(fd.get(), buffer.data(), buffer.size(), 0)) > 0) {
    answer.append(buffer.data(), static_cast<size_t>(size));
  }
  const size_t head_end = answer.find("\r\n\r\n");
  if (size < 0 || head_end == std::string::npos) {
    return absl::UnavailableError(absl::StrCat("no answer from ", address));
  }
  if (!absl::StrContains(answer.substr(0, answer.find("\r\n")), " 200")) {
    return absl::InternalError(absl::StrCat("http://", address, path, ": ", answer));
  }
  return answer.substr(head_end + 4);
}

LiveCluster::LiveCluster(Options options) : options_(std::move(options)) {
  const std::vector<std::string> named =
      absl::StrSplit(TextFromEnvironment("CROSSMESH_OLD_DAEMONS"), ',', absl::SkipEmpty());
  old_daemons_ = options_.old_daemons.value_or(std::set<std::string>(named.begin(), named.end()));
}

absl::StatusOr<std::unique_ptr<LiveCluster>> LiveCluster::Start(Options options) {
  std::unique_ptr<LiveCluster> cluster(new LiveCluster(std::move(options)));
  for (const std::string& controller : cluster->options_.controllers) {
    RETURN_IF_ERROR(cluster->StartController(controller));
  }
  ASSIGN_OR_RETURN(Client client, Client::Connect(cluster->controller_address(), {}));
  cluster->client_ = std::make_unique<Client>(std::move(client));
  for (const std::string& worker : cluster->workers()) {
    RETURN_IF_ERROR(cluster->StartWorker(worker));
  }
  RETURN_IF_ERROR(cluster->WaitForAllWorkers());
  return cluster;
}

LiveCluster::~LiveCluster() {
  for (auto& [name, process] : daemons_) process.Kill();
  if (testing::Test::HasFailure()) {
    for (const auto& [name, process] : daemons_) {
      std::cerr << "The log of " << name << " ends:\n" << EndOfLog(name) << "\n";
    }
  }
}

std::string LiveCluster::AddressOf(const std::string& controller) const {
  return absl::StrCat("unix:", PathOf(controller + ".sock"));
}

std::string LiveCluster::controller_address() const {
  std::vector<std::string> addresses;
  for (const std::string& name : options_.controllers) addresses.push_back(AddressOf(name));
  return absl::StrJoin(addresses, ",");
}

std::string LiveCluster::ProgramOf(const std::string& name, const std::string& program) const {
  return IsOld(name) ? absl::StrCat(ReleaseBefore(), "/", program) : ProgramPath(program);
}

absl::Status LiveCluster::LaunchDaemon(const std::string& program, const std::string& name,
                                       std::vector<std::string> arguments) {
  std::error_code error;
  fs::remove(PathOf(name + ".ready"), error);
  if (const auto own = options_.flags_of_daemon.find(name); own != options_.flags_of_daemon.end()) {
    arguments.insert(arguments.end(), own->second.begin(), own->second.end());
  }
  arguments.insert(arguments.end(),
                   {"--ready-file", PathOf(name + ".ready"), "--metrics-listen", "127.0.0.1:0"});
  ASSIGN_OR_RETURN(ChildProcess process, ChildProcess::Start({.program = ProgramOf(name, program),
                                                              .arguments = std::move(arguments),
                                                              .log_path = PathOf(name + ".log")}));
  daemons_.erase(name);
  daemons_.emplace(name, std::move(process));
  return absl::OkStatus();
}

absl::Status LiveCluster::StartDaemon(const std::string& program, const std::string& name,
                                      std::vector<std::string> arguments) {
  RETURN_IF_ERROR(LaunchDaemon(program, name, std::move(arguments)));
  ChildProcess& daemon = daemons_.at(name);
  std::optional<std::string> exit;
  const bool ready = WaitUntil(kJoinMax, [&] {
    exit = daemon.ExitText();
    return exit.has_value() || fs::exists(PathOf(name + ".ready"));
  });
  if (ready && !exit) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(name, exit ? " ended with " + *exit : " is not ready",
                                             "; its log ends:\n", EndOfLog(name)));
}

absl::Status LiveCluster::StartController(const std::string& name) {
  std::vector<std::string> flags = {"--listen", AddressOf(name)};
  flags.insert(flags.end(), options_.controller_flags.begin(), options_.controller_flags.end());
  const bool stands_by = options_.controllers.size() > 1 && !daemons_.empty();
  return stands_by ? LaunchDaemon("crossmesh-controller", name, std::move(flags))
                   : StartDaemon("crossmesh-controller", name, std::move(flags));
}

absl::Status LiveCluster::StartWorker(const std::string& name) {
  std::vector<std::string> flags = {"--name",          name,
                                    "--devices",       name + ".0",
                                    "--controller",    controller_address(),
                                    "--listen",        "unix:" + PathOf(name + ".sock"),
                                    "--memory-socket", PathOf(name + ".memory"),
                                    "--drain-timeout", "1"};
  flags.insert(flags.end(), options_.worker_flags.begin(), options_.worker_flags.end());
  return StartDaemon("crossmesh-worker", name, std::move(flags));
}

void LiveCluster::Signal(const std::string& name, int signal) {
  const pid_t pid = daemons_.at(name).pid();
  ASSERT_NE(pid, 0) << name << " does not run";
  if (signal == SIGSTOP) return StopChild(pid);
  SendSignal(pid, signal);
}

void LiveCluster::Kill(const std::string& name) { daemons_.at(name).Kill(); }

absl::Status LiveCluster::Stop(const std::string& name) {
  ChildProcess& daemon = daemons_.at(name);
  daemon.Terminate();
  std::optional<std::string> exit;
  WaitUntil(kJoinMax, [&] {
    exit = daemon.ExitText();
    return exit.has_value();
  });
  if (exit == "exit status 0") return absl::OkStatus();
  return absl::InternalError(absl::StrCat(name, ": expected exit status 0, found ",
                                          exit.value_or("that it runs"), "; its log ends:\n",
                                          EndOfLog(name)));
}

absl::StatusOr<nlohmann::json> LiveCluster::Ready(const std::string& name) const {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(PathOf(name + ".ready")));
  nlohmann::json ready = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!ready.is_object()) return absl::InternalError(absl::StrCat(name, ".ready: ", text));
  return ready;
}

absl::StatusOr<bool> LiveCluster::Leads(const std::string& controller) const {
  ASSIGN_OR_RETURN(const std::shared_ptr<grpc::Channel> channel,
                   BuildRpcChannel({.address = AddressOf(controller)}));
  return IsServing(channel, kLeaderService, absl::Seconds(5));
}

absl::StatusOr<v1::Worker> LiveCluster::GetWorker(const std::string& name) {
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client_->ListWorkers());
  const auto found = std::ranges::find(workers, name, &v1::Worker::name);
  if (found == workers.end()) return absl::NotFoundError(absl::StrCat("worker ", name));
  return *found;
}

absl::Status LiveCluster::WaitForWorker(const std::string& name, v1::WorkerState state) {
  absl::StatusOr<v1::Worker> worker = absl::UnknownError("not asked");
  const bool there = WaitUntil(kJoinMax, [&] {
    worker = GetWorker(name);
    return worker.ok() && worker->state() == state;
  });
  if (there) return absl::OkStatus();
  return absl::DeadlineExceededError(
      absl::StrCat("worker ", name, ": expected ", StateName(state), ", found ",
                   worker.ok() ? StateName(worker->state()) : worker.status().ToString()));
}

absl::Status LiveCluster::WaitForAllWorkers() {
  for (const std::string& worker : workers()) {
    RETURN_IF_ERROR(WaitForWorker(worker, v1::WORKER_STATE_READY));
  }
  return absl::OkStatus();
}

absl::StatusOr<MemoryClient> LiveCluster::Memory(const std::string& worker) const {
  return MemoryClient::Connect(PathOf(worker + ".memory"));
}

absl::StatusOr<double> LiveCluster::Metric(const std::string& daemon, const std::string& metric,
                                           const std::string& label) const {
  ASSIGN_OR_RETURN(const nlohmann::json ready, Ready(daemon));
  ASSIGN_OR_RETURN(const std::string text,
                   HttpGet(ready.value("metrics_address", std::string()), "/metrics"));
  double sum = 0;
  bool found = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    absl::string_view rest = line;
    if (!absl::ConsumePrefix(&rest, metric) || rest.empty() || (rest[0] != '{' && rest[0] != ' ') ||
        !absl::StrContains(rest, label)) {
      continue;
    }
    double value = 0;
    found |= absl::SimpleAtod(rest.substr(rest.rfind(' ') + 1), &value);
    sum += value;
  }
  if (found) return sum;
  return absl::NotFoundError(absl::StrCat(daemon, " has no metric ", metric, " with ", label));
}

std::string LiveCluster::EndOfLog(const std::string& name) const {
  const absl::StatusOr<std::string> log = ReadFile(PathOf(name + ".log"));
  if (!log.ok()) return "(none)";
  return log->substr(log->size() - std::min(log->size(), kLogEndBytes));
}

}  // namespace crossmesh
