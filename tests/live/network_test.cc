// The network that plans are made for, through real daemons: described, measured, and what is
// refused.

#include "client/cli/testing/program_run.h"
#include "common/testing/paths.h"
#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"

#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr char kFile[] = R"({"hosts": [{"name": "node-0", "nics": [{"name": "eth0",
    "out_bytes_per_second": 1000, "in_bytes_per_second": 2000, "out_latency_ns": 3000}],
    "local_bytes_per_second": 4000}],
    "racks": [{"name": "r1", "hosts": ["node-0"], "up_bytes_per_second": 5000,
               "down_bytes_per_second": 6000}]})";

class NetworkTest : public testing::Test {
 protected:
  void Start(std::vector<std::string> workers, std::vector<std::string> controller_flags = {}) {
    ASSERT_OK_AND_ASSIGN(cluster_,
                         LiveCluster::Start({.workers = std::move(workers),
                                             .controller_flags = std::move(controller_flags)}));
  }
  std::string Write(const std::string& name, const std::string& text) const {
    std::ofstream(files_.PathOf(name)) << text;
    return files_.PathOf(name);
  }
  ProgramResult Crossmesh(const std::string& arguments) const {
    return crossmesh::Crossmesh(
        absl::StrCat(arguments, " --controller ", cluster_->controller_address()));
  }
  ProgramResult Plan() const {
    return Crossmesh(absl::StrCat("plan --manifest ", SourcePath("client/cli/testdata/small.json"),
                                  " --source 'on node-0.0' --source-layout '[...]'"
                                  " --destination 'on node-1.0' --destination-layout '[...]'"));
  }

  const TemporaryFolder files_;
  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(NetworkTest, IsDescribedByAFileAtTheStartAndByAClientLater) {
  Start({}, {"--topology", Write("start.json", kFile)});
  const ProgramResult first = Crossmesh("network show");
  ASSERT_EQ(first.exit_status, 0) << first.error;
  EXPECT_THAT(
      first.out,
      AllOf(HasSubstr("network revision 1, from the controller's file, 20"),
            HasSubstr("node-0  eth0  1.0 kB/s  2.0 kB/s       3.0 us         0 s  4.0 kB/s"),
            HasSubstr("r1    5.0 kB/s  6.0 kB/s  node-0"),
            HasSubstr("Hosts that are not named: 12.5 GB/s per direction, assumed.")));
  EXPECT_THAT(Plan().out, HasSubstr("WARNING: the network description lacks node-1: 12.5 GB/s"));

  const std::string other =
      Write("other.json", R"({"hosts": [{"name": "node-1", "nics": [{"name": "n",
          "out_bytes_per_second": 7, "in_bytes_per_second": 8}]}]})");
  const ProgramResult set = Crossmesh("network set --revision 1 " + other);
  EXPECT_EQ(set.out, "network revision 2: 1 hosts, 0 racks\n") << set.error;
  EXPECT_THAT(Plan().out, HasSubstr("lacks node-0:"));
  const ProgramResult late = Crossmesh("network set --revision 1 " + other);
  EXPECT_EQ(late.exit_status, 1);
  EXPECT_THAT(late.error, HasSubstr("expected revision 1, found 2"));

  const nlohmann::json shown = nlohmann::json::parse(Crossmesh("network show --json").out);
  EXPECT_EQ(shown["revision"], "2");
  EXPECT_EQ(shown["source"], "NETWORK_SOURCE_CLIENT");
  EXPECT_EQ(shown["topology"]["hosts"][0]["nics"][0]["in_bytes_per_second"], "8");
  const ProgramResult file = Crossmesh("network show --as-file");
  const ProgramResult again = Crossmesh("network set " + Write("again.json", file.out));
  EXPECT_EQ(again.out, "network revision 2: 1 hosts, 0 racks\n") << again.error;
}

TEST_F(NetworkTest, ABadFileIsRefusedByNameAndChangesNothing) {
  Start({});
  const auto nic = [](const std::string& fields) {
    return absl::StrCat(R"({"hosts": [{"name": "node-0", "nics": [{"name": "eth0", )", fields,
                        "}]}]}");
  };
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[]", "expected an object"},
      {R"({"host": []})", "unknown key \"host\""},
      {nic(R"("out_bytes_per_second": 0, "in_bytes_per_second": 1)"),
       "host node-0, NIC \"eth0\": expected out_bytes_per_second of 1 to"},
      {nic(R"("out_bytes_per_second": 1, "in_bytes_per_second": -1)"),
       "host node-0, NIC \"eth0\": expected in_bytes_per_second of 1 to"},
      {nic(R"("out_bytes_per_second": 1250000000001, "in_bytes_per_second": 1)"), "(10 Tbit/s)"},
      {nic(R"("out_bytes_per_second": 1, "in_bytes_per_second": 1, "latency": 1)"),
       "unknown key \"latency\""}};
  for (const auto& [text, message] : cases) {
    const ProgramResult result = Crossmesh("network set " + Write("bad.json", text));
    EXPECT_EQ(result.exit_status, 1) << text;
    EXPECT_THAT(result.error, AllOf(HasSubstr("bad.json: "), HasSubstr(message)));
  }
  EXPECT_THAT(Crossmesh("network set " + files_.PathOf("none.json")).error, HasSubstr("none.json"));
  EXPECT_THAT(Crossmesh("network show").out, HasSubstr("the network is not described"));
}

TEST_F(NetworkTest, IsMeasuredBetweenAllWorkers) {
  Start({"node-0", "node-1", "node-2"}, {"--topology", Write("start.json", kFile)});
  const ProgramResult measured =
      Crossmesh("network measure --link-seconds 0.05 --link-bytes 20000000 --json");
  ASSERT_EQ(measured.exit_status, 0) << measured.error;
  const nlohmann::json result = nlohmann::json::parse(measured.out);
  ASSERT_EQ(result["links"].size(), 6);
  for (const nlohmann::json& link : result["links"]) {
    EXPECT_THAT(link["from"], HasSubstr("/lo"));
    EXPECT_GT(std::stoll(link["received_bytes"].get<std::string>()), 0);
    EXPECT_LE(std::stoll(link["received_bytes"].get<std::string>()), 20'000'000);
    EXPECT_GT(std::stoll(link["latency_ns"].get<std::string>()), 0);
  }
  EXPECT_EQ(result["warnings"].size(), 0) << result["warnings"];
  ASSERT_OK_AND_ASSIGN(const v1::Network network, cluster_->client().GetNetwork());
  EXPECT_EQ(network.revision(), 2);
  EXPECT_EQ(network.source(), v1::NETWORK_SOURCE_MEASURED);
  ASSERT_EQ(network.topology().hosts_size(), 3);
  for (const v1::Host& host : network.topology().hosts()) {
    ASSERT_EQ(host.nics_size(), 1) << host.name();
    EXPECT_EQ(host.nics(0).name(), "lo");
    EXPECT_GT(host.nics(0).out_bytes_per_second(), 1'000'000);
    EXPECT_GT(host.nics(0).in_bytes_per_second(), 1'000'000);
    EXPECT_GT(host.nics(0).out_latency_ns(), 0);
  }
  EXPECT_EQ(network.topology().hosts(0).local_bytes_per_second(), 4000);
  EXPECT_EQ(network.topology().racks_size(), 1);
  const ProgramResult plan = Plan();
  EXPECT_EQ(plan.exit_status, 0) << plan.error;
  EXPECT_THAT(plan.out, AllOf(Not(HasSubstr("WARNING")), Not(HasSubstr("assumed"))));
  EXPECT_THAT(Crossmesh("network show").out, HasSubstr("network revision 2, measured, 20"));
}

TEST_F(NetworkTest, TheDoctorTriesTheLinksAndStoresNothing) {
  Start({"node-0", "node-1"});
  const ProgramResult result = Crossmesh("doctor --json");  // this host may have problems
  const nlohmann::json checks = nlohmann::json::parse(result.out)["checks"];
  ASSERT_FALSE(checks.empty()) << result.error;
  EXPECT_EQ(checks.back()["name"], "links");
  EXPECT_NE(checks.back()["state"], "problem") << checks.back();
  EXPECT_THAT(checks.back()["found"], HasSubstr("2 at "));
  EXPECT_THAT(Crossmesh("network show").out, HasSubstr("the network is not described"));
}

TEST_F(NetworkTest, AWorkerThatDoesNotAnswerIsNamedAndNothingIsStored) {
  Start({"node-0", "node-1"});
  cluster_->Signal("node-1", SIGSTOP);
  const ProgramResult result = Crossmesh("network measure --link-seconds 0.05");
  EXPECT_EQ(result.exit_status, 5);
  EXPECT_THAT(result.error, HasSubstr("worker node-1"));
  cluster_->Signal("node-1", SIGCONT);
  EXPECT_THAT(Crossmesh("network show").out, HasSubstr("the network is not described"));
}

TEST_F(NetworkTest, OneHostHasNothingToMeasure) {
  Start({"node-0"});
  EXPECT_THAT(Crossmesh("network measure").error,
              HasSubstr("expected workers on two hosts or more, found host node-0 only"));
  EXPECT_THAT(Crossmesh("network measure --link-bytes 1").error, HasSubstr("link_bytes"));
}

}  // namespace
}  // namespace crossmesh
