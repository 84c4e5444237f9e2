// What a controller's sessions cost: the agents of many workers in one process, over TCP, with
// heartbeats of which each is answered. Then the controller is killed and started again: when are
// all of them back? Prints one line of JSON per case.

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/descriptor_limit.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "common/wire/session_protocol.h"
#include "tests/benchmark/child_usage.h"
#include "tests/benchmark/processors.h"
#include "tests/live/live_cluster.h"
#include "worker/agent/grpc_session_caller.h"
#include "worker/agent/session_agent.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

namespace crossmesh {
namespace {

struct Options {
  int sessions = 4096;
  int restarts = 3;
  double seconds = 30;
  std::string port = "17400";
  bool one_core = false;
};

constexpr absl::Duration kPatience = absl::Minutes(2);

// The worker of one agent, which has nothing to do: it asks what became of an operation that nobody
// knows, so that every heartbeat is answered. Confined to the loop.
class IdleHost final : public SessionHost {
 public:
  IdleHost(const Clock& clock, std::vector<double>& times_ms) : clock_(clock), times_(times_ms) {}

  void Refresh(v1::WorkerSessionRequest::Register&) override {}
  void MakeHeartbeat(uint64_t, absl::AnyInvocable<void(Heartbeat)> done) override {
    Heartbeat heartbeat;
    heartbeat.add_held_operations("op-of-nobody");
    sent_ = clock_.Monotonic();
    done(std::move(heartbeat));
  }
  void OnDrain() override {}
  void OnUndrain() override {}
  void OnOperationsEnded(uint64_t, const std::vector<std::string>&) override {
    times_.push_back(absl::ToDoubleMilliseconds(clock_.Monotonic() - sent_));
  }
  void OnRefused(const absl::Status& why) override { CHECK_OK(why); }

 private:
  const Clock& clock_;
  std::vector<double>& times_;
  absl::Duration sent_;
};

// All agents, on one loop.
class Fleet {
 public:
  Fleet(const Options& options, const std::string& address) {
    absl::StatusOr<std::unique_ptr<EventLoop>> loop =
        EventLoop::Create(clock_, {.spin = absl::ZeroDuration()});
    CHECK_OK(loop);
    loop_ = *std::move(loop);
    for (int i = 0; i < options.sessions; ++i) {
      hosts_.push_back(std::make_unique<IdleHost>(clock_, times_ms_));
      SessionAgent::Options own = {.controllers = {address}, .seed = static_cast<uint64_t>(i)};
      own.registration.set_worker(absl::StrCat("w-", i));
      own.registration.set_incarnation(1);
      own.registration.set_devices(absl::StrCat("h-", i, ".0"));
      own.registration.set_execution_address("unix:/nobody");
      own.registration.set_protocol(kSessionProtocols.newest);
      auto agent = SessionAgent::Create(
          {.loop = *loop_, .host = *hosts_.back(), .metrics = metrics_}, std::move(own),
          std::make_unique<GrpcSessionCaller>(*loop_, /*insecure=*/false));
      CHECK_OK(agent);
      agents_.push_back(*std::move(agent));
    }
    loop_->Start();
  }

  void Start() {
    loop_->RunAndWait([this] {
      for (auto& agent : agents_) agent->Start();
    });
  }

  int64_t registered() {
    int64_t count = 0;
    loop_->RunAndWait([&] {
      count = std::ranges::count_if(agents_, [](auto& agent) { return agent->registered(); });
    });
    return count;
  }

  // Seconds until all are there.
  double WaitForAll() {
    const absl::Duration begin = clock_.Monotonic();
    const auto all = static_cast<int64_t>(agents_.size());
    CHECK(WaitUntil(kPatience, [&] { return registered() == all; }));
    return absl::ToDoubleSeconds(clock_.Monotonic() - begin);
  }

  std::vector<double> TakeTimes() {
    std::vector<double> times;
    loop_->RunAndWait([&] { times = std::exchange(times_ms_, {}); });
    return times;
  }

  // Ends all calls without a word.
  void Stop() {
    size_t left = 0;
    loop_->RunAndWait([&] {
      for (auto& agent : agents_) {
        agent->Leave([&left] { ++left; });
        agent->BreakOff();
      }
    });
    CHECK(WaitUntil(kPatience, [&] {
      bool all = false;
      loop_->RunAndWait([&] { all = left == agents_.size(); });
      return all;
    }));
    loop_->Stop();
  }

 private:
  const RealClock clock_;
  std::unique_ptr<EventLoop> loop_;
  WorkerMetrics metrics_;
  std::vector<double> times_ms_;
  std::vector<std::unique_ptr<IdleHost>> hosts_;
  std::vector<std::unique_ptr<SessionAgent>> agents_;
};

double OwnProcessorSeconds() {
  rusage usage = {};
  CHECK_EQ(getrusage(RUSAGE_SELF, &usage), 0);
  return absl::ToDoubleSeconds(absl::DurationFromTimeval(usage.ru_utime) +
                               absl::DurationFromTimeval(usage.ru_stime));
}

class SessionBenchmark {
 public:
  SessionBenchmark(const Options& options, LiveCluster& cluster)
      : options_(options),
        cluster_(cluster),
        fleet_(options, absl::StrCat("127.0.0.1:", options.port)) {}

  void Run() {
    Pin();
    fleet_.Start();
    Print("connect", {{"seconds", fleet_.WaitForAll()}});
    Heartbeats();
    for (int i = 0; i < options_.restarts; ++i) Restart();
    fleet_.Stop();
  }

 private:
  // The controller and the workers share the machine, so that what both take of its processors
  // bounds the time.
  void Restart() {
    const double processor_before = OwnProcessorSeconds();
    cluster_.Kill(LiveCluster::kController);
    const absl::Duration begin = clock_.Monotonic();
    CHECK_OK(cluster_.StartController());
    Pin();
    fleet_.WaitForAll();
    Print("restart", {{"seconds", absl::ToDoubleSeconds(clock_.Monotonic() - begin)},
                      {"controller_processor_seconds", UsageOfChildren().front().processor_seconds},
                      {"workers_processor_seconds", OwnProcessorSeconds() - processor_before}});
  }

  void Heartbeats() {
    fleet_.TakeTimes();
    const ChildUsage before = UsageOfChildren().front();
    CHECK(!WaitUntil(absl::Seconds(options_.seconds), [] { return false; }));
    const ChildUsage after = UsageOfChildren().front();
    std::vector<double> times = fleet_.TakeTimes();
    CHECK(!times.empty());
    std::ranges::sort(times);
    const auto workers = cluster_.client().ListWorkers();
    CHECK_OK(workers);
    const auto lost = std::ranges::count_if(*workers, [](const v1::Worker& worker) {
      return worker.state() != v1::WORKER_STATE_READY;
    });
    Print("heartbeats",
          {{"per_second", static_cast<double>(times.size()) / options_.seconds},
           {"p50_ms", times[times.size() / 2]},
           {"p99_ms", times[times.size() * 99 / 100]},
           {"cores", (after.processor_seconds - before.processor_seconds) / options_.seconds},
           {"resident_mib", after.resident_bytes >> 20},
           {"not_ready", lost}});
  }

  void Pin() {
    if (!options_.one_core) return;
    const absl::StatusOr<nlohmann::json> ready = cluster_.Ready(LiveCluster::kController);
    CHECK_OK(ready);
    RunOn({.count = 1}, ready->at("pid").get<pid_t>());
  }

  void Print(const std::string& what, nlohmann::json figures) {
    figures["case"] = what;
    figures["sessions"] = options_.sessions;
    std::printf("%s\n", figures.dump().c_str());
    std::fflush(stdout);
  }

  const Options options_;
  LiveCluster& cluster_;
  const RealClock clock_;
  Fleet fleet_;
};

void RunSessions(const Options& options) {
  CHECK_OK(RaiseDescriptorLimit());
  const TemporaryFolder state;
  const auto cluster = LiveCluster::Start(
      {.workers = {},
       .controller_flags = {"--listen", absl::StrCat("127.0.0.1:", options.port), "--log-level",
                            "error", "--state-dir", state.PathOf("store")}});
  CHECK_OK(cluster);
  SessionBenchmark(options, **cluster).Run();
}

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("What a controller's sessions with workers cost", "session_benchmark");
  crossmesh::Options options;
  app.add_option("--sessions", options.sessions, "Workers")->capture_default_str();
  app.add_option("--restarts", options.restarts, "How often the controller is killed")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Of heartbeats")->capture_default_str();
  app.add_option("--port", options.port, "Of 127.0.0.1, which must be free")->capture_default_str();
  app.add_flag("--one-core", options.one_core, "The controller has one core");
  CLI11_PARSE(app, argc, argv);
  crossmesh::SetMinimumLogLevel(crossmesh::LogLevel::kError);
  crossmesh::RunSessions(options);
}
