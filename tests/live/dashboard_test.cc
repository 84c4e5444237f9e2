// Every query of every dashboard, run by a real Prometheus that scrapes live daemons under load.

#include "client/cli/cli.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/mesh/mesh.h"
#include "common/testing/child_process.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"
#include "tests/standin/stand_in.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>
#include <absl/strings/str_join.h>
#include <absl/strings/str_replace.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

constexpr absl::Duration kStartMax = absl::Seconds(30);
// For the load to show in every panel.
constexpr absl::Duration kDataMax = absl::Seconds(60);

std::string UrlEncode(const std::string& text) {
  std::string encoded;
  for (const char c : text) {
    if (absl::ascii_isalnum(c)) {
      encoded += c;
    } else {
      absl::StrAppendFormat(&encoded, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return encoded;
}

// A Prometheus that scrapes all daemons of a cluster every second. Thread-compatible.
class Prometheus {
 public:
  static absl::StatusOr<std::unique_ptr<Prometheus>> Start(const LiveCluster& cluster) {
    std::unique_ptr<Prometheus> prometheus(new Prometheus());
    RETURN_IF_ERROR(prometheus->WriteConfiguration(cluster));
    RETURN_IF_ERROR(prometheus->Run());
    return prometheus;
  }

  // Rates do not show what daemons counted before.
  absl::Status AwaitFirstScrape(size_t daemons) const {
    const bool scraped = WaitUntil(kStartMax, [&] {
      const absl::StatusOr<std::vector<double>> up = Query("sum(up)");
      return up.ok() && *up == std::vector<double>{static_cast<double>(daemons)};
    });
    return scraped ? absl::OkStatus()
                   : absl::UnavailableError("prometheus does not scrape all daemons");
  }

  // The samples of an instant query. Internal: what Prometheus has against it.
  absl::StatusOr<std::vector<double>> Query(const std::string& expression) const {
    ASSIGN_OR_RETURN(const std::string text,
                     HttpGet(address_, "/api/v1/query?query=" + UrlEncode(expression)));
    const nlohmann::json answer = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!answer.is_object() || answer.value("status", "") != "success") {
      return absl::InternalError(absl::StrCat(expression, ": ", text));
    }
    std::vector<double> samples;
    for (const nlohmann::json& series : answer.at("data").at("result")) {
      double sample = 0;
      if (!absl::SimpleAtod(series.at("value").at(1).get<std::string>(), &sample)) {
        return absl::InternalError(absl::StrCat(expression, ": ", text));
      }
      samples.push_back(sample);
    }
    return samples;
  }

 private:
  Prometheus() = default;

  absl::Status WriteConfiguration(const LiveCluster& cluster) {
    const auto target = [&](const std::string& daemon) -> absl::StatusOr<std::string> {
      ASSIGN_OR_RETURN(const nlohmann::json ready, cluster.Ready(daemon));
      return absl::StrCat("'", ready.value("metrics_address", std::string()), "'");
    };
    ASSIGN_OR_RETURN(const std::string controller, target(LiveCluster::kController));
    std::vector<std::string> workers;
    for (const std::string& worker : cluster.workers()) {
      ASSIGN_OR_RETURN(workers.emplace_back(), target(worker));
    }
    std::ofstream file(folder_.PathOf("prometheus.yml"));
    file << "global: {scrape_interval: 1s, scrape_timeout: 1s}\n"
         << "scrape_configs:\n"
         << "- {job_name: crossmesh-controller, static_configs: [{targets: [" << controller
         << "]}]}\n"
         << "- {job_name: crossmesh-worker, static_configs: [{targets: ["
         << absl::StrJoin(workers, ", ") << "]}]}\n";
    file.close();
    return file ? absl::OkStatus() : absl::UnavailableError("prometheus.yml");
  }

  absl::Status Run() {
    ASSIGN_OR_RETURN(
        ChildProcess process,
        ChildProcess::Start({.program = "/usr/bin/prometheus",
                             .arguments = {"--config.file=" + folder_.PathOf("prometheus.yml"),
                                           "--storage.tsdb.path=" + folder_.PathOf("data"),
                                           "--web.listen-address=127.0.0.1:0"},
                             .log_path = folder_.PathOf("log")}));
    process_.emplace(std::move(process));
    const bool ready = WaitUntil(kStartMax, [this] {
      FindAddress();
      return !address_.empty() && HttpGet(address_, "/-/ready").ok();
    });
    if (ready) return absl::OkStatus();
    return absl::UnavailableError(
        absl::StrCat("prometheus: ", ReadFile(folder_.PathOf("log")).value_or("no log")));
  }

  // It says on which port it listens in its log only.
  void FindAddress() {
    const std::string log = ReadFile(folder_.PathOf("log")).value_or("");
    for (const absl::string_view line : absl::StrSplit(log, '\n')) {
      const std::pair<absl::string_view, absl::string_view> parts =
          absl::StrSplit(line, absl::MaxSplits("msg=\"Listening on\" address=", 1));
      if (!parts.second.empty()) address_ = std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }

  const TemporaryFolder folder_;
  std::optional<ChildProcess> process_;  // before the folder goes
  std::string address_;
};

// Queries by "panel: expression", variables filled in.
absl::StatusOr<std::map<std::string, std::string>> QueriesOf(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const nlohmann::json dashboard = nlohmann::json::parse(text, nullptr, false);
  std::map<std::string, std::string> queries;
  for (const nlohmann::json& panel : dashboard.at("panels")) {
    if (panel.at("type") == "row") continue;
    for (const nlohmann::json& target : panel.at("targets")) {
      const std::string expression =
          absl::StrReplaceAll(target.at("expr").get<std::string>(), {{"$job", ".+"},
                                                                     {"$instance", ".+"},
                                                                     {"$__rate_interval", "10s"},
                                                                     {"$__interval", "10s"},
                                                                     {"$__range", "60s"}});
      queries[absl::StrCat(panel.at("title").get<std::string>(), ": ", expression)] = expression;
    }
  }
  return queries;
}

bool HasNumber(const std::vector<double>& samples) {
  return std::ranges::any_of(samples, [](double sample) { return !std::isnan(sample); });
}

// Each with a GPU of the stand-in as its second device.
LiveCluster::Options ThreeWorkersWithGpus() {
  LiveCluster::Options options = {
      .workers = {"node-0", "node-1", "node-2"},
      .worker_flags = {"--cuda-library", StandInDriverPath(), "--nccl-library", StandInNcclPath()}};
  setenv("CROSSMESH_STANDIN_DEVICES", absl::StrCat(options.workers.size()).c_str(), 1);
  setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
  for (size_t number = 0; number < options.workers.size(); ++number) {
    const std::string& worker = options.workers[number];
    options.flags_of_daemon[worker] = {"--gpu", absl::StrCat(worker, ".1=", StandInUuid(number))};
  }
  return options;
}

// The same tensors from one device to another, in place, into a storage that is made.
v1::ReshardSpec Between(v1::ReshardSpec spec, const std::string& source,
                        const std::string& destination) {
  *spec.mutable_source()->mutable_inline_mesh() = ToProto(ParseMesh("on " + source).value());
  *spec.mutable_destination()->mutable_inline_mesh() =
      ToProto(ParseMesh("on " + destination).value());
  spec.clear_replica_axes();
  spec.set_binding(v1::BINDING_MODE_IN_PLACE);
  spec.set_create_destination(true);
  return spec;
}

TEST(DashboardTest, EveryPanelShowsDataUnderLoad) {
  ASSERT_OK_AND_ASSIGN(const auto cluster, LiveCluster::Start(ThreeWorkersWithGpus()));
  ASSERT_OK_AND_ASSIGN(const auto reshard,
                       ReshardCase::Create({.manifest = TensorsOf(32 << 20)}, *cluster));
  ASSERT_OK_AND_ASSIGN(const auto prometheus, Prometheus::Start(*cluster));
  using Queries = std::map<std::string, std::string>;
  ASSERT_OK_AND_ASSIGN(Queries waiting, QueriesOf(SourcePath("dashboards/transfers.json")));
  ASSERT_GT(waiting.size(), 20);
  ASSERT_OK(prometheus->AwaitFirstScrape(cluster->workers().size() + 1));
  v1::ReshardSpec load = Between(reshard->spec(), "node-0.0", "node-0.1");
  load.mutable_destination()->set_storage(load.source().storage());
  ASSERT_OK_AND_ASSIGN(const v1::Operation loaded, Execute(cluster->controller_address(), load));
  ASSERT_OK(OutcomeOf(loaded));

  v1::ReshardSpec bad = reshard->spec();
  bad.mutable_destination()->set_storage("nowhere");
  const RealClock clock;
  const absl::Duration until = clock.Monotonic() + kDataMax;
  for (int round = 0; !waiting.empty() && clock.Monotonic() < until; ++round) {
    // New plans now and then, so that both hits and misses of the cache show.
    reshard->spec().set_strategy(round % 2 == 0 ? "relay" : "send_recv");
    reshard->spec().set_seed(round / 4);
    ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                         Execute(cluster->controller_address(), reshard->spec()));
    EXPECT_OK(OutcomeOf(operation));
    const absl::StatusOr<v1::Operation> failed = Execute(cluster->controller_address(), bad);
    EXPECT_FALSE(failed.ok() && failed->state() == v1::OPERATION_STATE_COMMITTED);
    // Two groups of GPUs, so two communicators.
    const std::string to = round % 2 == 0 ? "node-1.1" : "node-2.1";
    ASSERT_OK_AND_ASSIGN(
        const v1::Operation between_gpus,
        Execute(cluster->controller_address(), Between(reshard->spec(), "node-0.1", to)));
    EXPECT_OK(OutcomeOf(between_gpus));
    for (auto query = waiting.begin(); query != waiting.end();) {
      ASSERT_OK_AND_ASSIGN(const std::vector<double> samples, prometheus->Query(query->second));
      query = HasNumber(samples) ? waiting.erase(query) : std::next(query);
    }
  }
  for (const auto& [name, expression] : waiting) ADD_FAILURE() << "no data for " << name;
}

}  // namespace
}  // namespace crossmesh
