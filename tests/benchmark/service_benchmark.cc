// What a controller costs without its workers' work: plans, operations and iterations of pipelines
// through its API, with workers that do at once, or never, what they are asked. Metadata in memory
// and on disk, turn by turn. Prints one line of JSON per case; times are in milliseconds.

#include "client/client.h"
#include "client/pause.h"
#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/log.h"
#include "common/daemon/descriptor_limit.h"
#include "common/testing/temporary_folder.h"
#include "controller/controller.h"
#include "controller/store/memory_store.h"
#include "controller/store/sqlite/sqlite_store.h"
#include "controller/testing/fake_worker.h"
#include "tests/benchmark/half_to_half.h"
#include "tests/benchmark/measure.h"
#include "tests/benchmark/plan_load.h"
#include "tests/benchmark/plan_overload.h"
#include "tests/benchmark/processors.h"
#include "tests/live/chain_pipeline.h"
#include "tests/live/live_cluster.h"

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
#include <unistd.h>

namespace crossmesh {
namespace {

struct Options {
  std::string folder;  // of the store on disk
  int operations = 300;
  int iterations = 1000;
  int rounds = 3;
  int workers = 256;
  int dispatches = 50;
  int clients = 400;    // of the overload
  double overload = 3;  // so many times the rate of new plans
  double seconds = 10;
  int matrices = 8;  // of a larger plan
};

void Print(const std::string& what, nlohmann::json figures) {
  figures["case"] = what;
  std::printf("%s\n", figures.dump().c_str());
  std::fflush(stdout);
}

nlohmann::json QuantilesOf(std::vector<double> seconds) {
  CHECK(!seconds.empty());
  std::ranges::sort(seconds);
  return {{"p50_ms", seconds[seconds.size() / 2] * 1e3},
          {"p99_ms", seconds[seconds.size() * 99 / 100] * 1e3}};
}

// A controller that serves in this process, and its workers, which move nothing.
class Service {
 public:
  explicit Service(std::shared_ptr<MetadataStore> store, int workers) {
    absl::StatusOr<std::unique_ptr<Controller>> controller = Controller::Create(
        {.listen = {address_}, .lost_after = absl::InfiniteDuration(), .store = std::move(store)});
    CHECK_OK(controller);
    controller_ = *std::move(controller);
    for (int i = 0; i < workers; ++i) {
      hosts_.push_back(absl::StrCat("h", i));
      workers_.push_back(
          std::make_unique<FakeWorker>(FakeWorker::Options{.folder = folder_.path(),
                                                           .name = absl::StrCat("w-", i),
                                                           .devices = absl::StrCat("h", i, ".0"),
                                                           .controller = address_}));
    }
  }
  ~Service() {
    workers_.clear();
    controller_->Shutdown(absl::ZeroDuration());
  }

  Client NewClient() const {
    absl::StatusOr<Client> client = Client::Connect(address_, {.call_timeout = absl::Minutes(2)});
    CHECK_OK(client);
    return *std::move(client);
  }
  const std::vector<std::string>& hosts() const { return hosts_; }
  std::vector<std::unique_ptr<FakeWorker>>& workers() { return workers_; }

 private:
  const TemporaryFolder folder_;
  const std::string address_ = "unix:" + folder_.PathOf("controller.sock");
  std::unique_ptr<Controller> controller_;
  std::vector<std::string> hosts_;
  std::vector<std::unique_ptr<FakeWorker>> workers_;
};

v1::ExecuteReshardRequest RequestOf(const v1::ReshardSpec& spec) {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(NewRequestId());
  return request;
}

void RunOperations(Service& service, int count, std::vector<double>& seconds) {
  Client client = service.NewClient();
  const v1::ReshardSpec spec = HalfToHalf(service.hosts());
  for (int i = 0; i < count; ++i) {
    seconds.push_back(SecondsOf([&] {
      const auto operation = client.Execute(RequestOf(spec), [](const v1::Operation&) {});
      CHECK_OK(operation);
      CHECK_EQ(operation->state(), v1::OPERATION_STATE_COMMITTED);
    }));
  }
}

// Of one run, by iteration.
double SecondsOfAnIteration(Service& service, int64_t iterations) {
  Client client = service.NewClient();
  v1::StartPipelineRequest request;
  *request.mutable_inline_pipeline() = ChainPipeline(service.hosts(), 1e-6);
  request.mutable_choice()->set_schedule("eager_1f1b");
  request.set_request_id(NewRequestId());
  request.set_iterations(iterations);
  request.set_rehearsal(true);
  const double seconds = SecondsOf([&] {
    const auto run = client.StartPipeline(request, [](const v1::PipelineRun&) {});
    CHECK_OK(run);
    CHECK_EQ(run->state(), v1::PIPELINE_RUN_STATE_DONE);
  });
  return seconds / static_cast<double>(iterations);
}

// Operations and iterations, with metadata in memory and on disk.
void CompareStores(const Options& options) {
  const RealClock clock;
  const TemporaryFolder own;
  const std::string folder = options.folder.empty() ? own.PathOf("store") : options.folder;
  auto on_disk = SqliteStore::Open({.folder = folder, .clock = clock});
  CHECK_OK(on_disk);
  struct Kind {
    std::string name;
    std::unique_ptr<Service> service;
    std::vector<double> operations = {};
    std::vector<double> iterations = {};
  };
  std::vector<Kind> kinds;
  kinds.push_back({"memory", std::make_unique<Service>(std::make_shared<MemoryStore>(), 2)});
  kinds.push_back({"sqlite", std::make_unique<Service>(*std::move(on_disk), 2)});
  for (int round = 0; round < options.rounds; ++round) {
    for (Kind& kind : kinds) {
      RunOperations(*kind.service, options.operations, kind.operations);
      kind.iterations.push_back(SecondsOfAnIteration(*kind.service, options.iterations));
    }
  }
  for (Kind& kind : kinds) {
    nlohmann::json figures = QuantilesOf(kind.operations);
    figures["store"] = kind.name;
    Print("operation", std::move(figures));
    nlohmann::json iterations = QuantilesOf(kind.iterations);  // each the mean of a run
    iterations["store"] = kind.name;
    Print("iteration", std::move(iterations));
  }
}

// Until all workers of an operation have accepted it.
void Dispatch(const Options& options) {
  Service service(nullptr, options.workers);
  Client client = service.NewClient();
  const v1::ReshardSpec spec = HalfToHalf(service.hosts());
  std::vector<double> seconds;
  for (int i = 0; i < options.dispatches; ++i) {
    for (auto& worker : service.workers()) worker->SetManner(FakeWorker::Manner::kHolding);
    std::string id;
    const double now = SecondsOf([&] {
      const auto operation = client.Start(RequestOf(spec));
      CHECK_OK(operation);
      id = operation->id();
      for (auto& worker : service.workers()) worker->WaitUntilHolding(1);
    });
    if (i > 0) seconds.push_back(now);  // the first one's parts travel, and it is planned
    for (auto& worker : service.workers()) worker->Release();
    CHECK_OK(client.Watch(id, [](const v1::Operation&) {}));
  }
  nlohmann::json figures = QuantilesOf(seconds);
  figures["workers"] = options.workers;
  Print("dispatch", std::move(figures));
}

// What the machine itself takes, with nothing else running: an answer takes several such wake-ups.
void PrintWakeUps() {
  constexpr double kSleepSeconds = 1e-3;
  std::vector<double> late;
  for (int i = 0; i < 2000; ++i) {
    late.push_back(SecondsOf([] { Pause(absl::Seconds(kSleepSeconds)); }) - kSleepSeconds);
  }
  Print("an idle thread wakes up late", QuantilesOf(std::move(late)));
}

// Loads of a controller by clients in this process, which have the other half of the processors.
class Plans {
 public:
  explicit Plans(const Options& options) : options_(options), cluster_(StartController()) {
    RunOn(SecondHalf(), getpid());
  }

  void Run() {
    PrintWakeUps();
    const BusyProcessors busy(SecondHalf());
    PrintRate("cached plans", load_, PlanLoad::Plans::kCached);
    const double peak = PrintRate("new plans", load_, PlanLoad::Plans::kNew);
    // One at a time, so that none waits for another one.
    PlanLoad::Outcome alone = load_.Run(1, options_.seconds, PlanLoad::Plans::kNew);
    Print("one new plan, without the planner's time", QuantilesOf(std::move(alone.beside)));
    Overload("overload by new plans", load_, peak);
    const double after = load_.Run(8, options_.seconds, PlanLoad::Plans::kNew).per_second;
    Print("after the overload", {{"per_second", after}, {"of_peak", after / peak}});
    PlanLoad larger(cluster_->controller_address(), options_.matrices);
    const double larger_peak = PrintRate("larger new plans", larger, PlanLoad::Plans::kNew);
    Overload("overload by larger new plans", larger, larger_peak);
  }

 private:
  static std::unique_ptr<LiveCluster> StartController() {
    // A child begins on the processors of its parent.
    RunOn(FirstHalf(), getpid());
    auto cluster = LiveCluster::Start(
        {.controller_flags = {"--listen", "127.0.0.1:0", "--log-level", "error"}});
    CHECK_OK(cluster);
    return *std::move(cluster);
  }

  double PrintRate(const std::string& what, PlanLoad& load, PlanLoad::Plans plans) {
    load.Run(8, 1, plans);  // to warm up
    const PlanLoad::Outcome outcome = load.Run(8, options_.seconds, plans);
    nlohmann::json figures = QuantilesOf(outcome.answered);
    figures["per_second"] = outcome.per_second;
    Print(what, std::move(figures));
    return outcome.per_second;
  }

  void Overload(const std::string& what, PlanLoad& load, double peak) {
    const PlanOverload overload = {.address = TcpAddress(),
                                   .clients = options_.clients,
                                   .per_second = options_.overload * peak,
                                   .seconds = options_.seconds};
    const auto outcome = overload.Run([&](int64_t) { return load.NewPlan(); });
    nlohmann::json figures = {
        {"clients", options_.clients},          {"asked_per_second", overload.per_second},
        {"per_second", outcome.per_second},     {"of_peak", outcome.per_second / peak},
        {"sent_late_ms", outcome.latest * 1e3}, {"refused", outcome.refused.size()}};
    if (!outcome.refused.empty()) {
      figures["refused_after"] = QuantilesOf(outcome.refused);
      figures["told_to_wait"] = QuantilesOf(outcome.told);
    }
    Print(what, std::move(figures));
  }

  // Where each connection is a client of its own.
  std::string TcpAddress() const {
    const absl::StatusOr<nlohmann::json> ready = cluster_->Ready(LiveCluster::kController);
    CHECK_OK(ready);
    return ready->at("addresses").back().get<std::string>();
  }

  const Options options_;
  const std::unique_ptr<LiveCluster> cluster_;
  PlanLoad load_{cluster_->controller_address(), 1};
};

}  // namespace
}  // namespace crossmesh

int main(int argc, char** argv) {
  CLI::App app("What a controller costs", "service_benchmark");
  crossmesh::Options options;
  app.add_option("--folder", options.folder, "Of the store on disk; must not be there");
  app.add_option("--operations", options.operations, "Each round")->capture_default_str();
  app.add_option("--iterations", options.iterations, "Each round")->capture_default_str();
  app.add_option("--rounds", options.rounds, "Of operations and iterations")->capture_default_str();
  app.add_option("--workers", options.workers, "Of one dispatch, even")->capture_default_str();
  app.add_option("--dispatches", options.dispatches, "How often")->capture_default_str();
  app.add_option("--clients", options.clients, "That ask for plans at once in the overload")
      ->capture_default_str();
  app.add_option("--overload", options.overload, "Its rate, in times of that of new plans")
      ->capture_default_str();
  app.add_option("--seconds", options.seconds, "Of each case of plans")->capture_default_str();
  app.add_option("--matrices", options.matrices, "Of each of the larger plans; the others have one")
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  crossmesh::SetMinimumLogLevel(crossmesh::LogLevel::kError);
  CHECK_OK(crossmesh::RaiseDescriptorLimit());
  crossmesh::CompareStores(options);
  crossmesh::Dispatch(options);
  crossmesh::Plans(options).Run();
}
