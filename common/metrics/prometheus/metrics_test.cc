#include "common/base/unique_fd.h"
#include "common/base/version.h"
#include "common/metrics/controller_metrics.h"
#include "common/metrics/prometheus/exporter.h"
#include "common/metrics/prometheus/metric_collector.h"
#include "common/metrics/prometheus/process_collector.h"
#include "common/metrics/rpc_metrics.h"
#include "common/metrics/worker_metrics.h"
#include "common/testing/is_refused.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/communicator_service.pb.h"
#include "crossmesh/v1/controller_service.pb.h"
#include "crossmesh/v1/execution_service.pb.h"
#include "crossmesh/v1/manifest_service.pb.h"
#include "crossmesh/v1/mesh_service.pb.h"
#include "crossmesh/v1/network_service.pb.h"
#include "crossmesh/v1/operation_service.pb.h"
#include "crossmesh/v1/pipeline_execution_service.pb.h"
#include "crossmesh/v1/pipeline_service.pb.h"
#include "crossmesh/v1/probe_service.pb.h"
#include "crossmesh/v1/reshard_service.pb.h"
#include "crossmesh/v1/worker_service.pb.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <prometheus/text_serializer.h>
#include <sys/socket.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

// What GET /metrics answers, with its header.
std::string Scrape(const std::string& address) {
  const std::vector<std::string> parts = absl::StrSplit(address, ':');
  int port = 0;
  EXPECT_TRUE(absl::SimpleAtoi(parts.at(1), &port));
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in name = {};
  name.sin_family = AF_INET;
  name.sin_port = htons(static_cast<uint16_t>(port));
  EXPECT_EQ(inet_pton(AF_INET, parts[0].c_str(), &name.sin_addr), 1);
  EXPECT_EQ(connect(fd.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)), 0);
  const std::string request = "GET /metrics HTTP/1.0\r\n\r\n";
  EXPECT_EQ(write(fd.get(), request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer;
  char buffer[4096];
  for (ssize_t got = 0; (got = read(fd.get(), buffer, sizeof(buffer))) > 0;) {
    answer.append(buffer, static_cast<size_t>(got));
  }
  return answer;
}

std::string BodyOf(const std::string& answer) {
  const size_t end = answer.find("\r\n\r\n");
  EXPECT_NE(end, std::string::npos) << answer;
  return answer.substr(std::min(end + 4, answer.size()));
}

int64_t CountSeries(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  return std::ranges::count_if(
      lines, [](const std::string& line) { return !line.empty() && line[0] != '#'; });
}

// The value of the series, e.g. `a_total{b="c"}`, or -1.
double ValueOf(const std::string& text, const std::string& series) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StartsWith(line, series + " ")) continue;
    double value = -1;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(series.size() + 1), &value));
    return value;
  }
  return -1;
}

class MetricsTest : public testing::Test {
 protected:
  void StartController() {
    controller_.emplace();
    rpc_.emplace(kControllerMethods);
    sets_ = {&controller_->metrics(), &rpc_->metrics()};
  }
  void StartWorker() {
    worker_.emplace();
    rpc_.emplace(kWorkerMethods);
    sets_ = {&worker_->metrics(), &rpc_->metrics()};
  }
  std::string Text() {
    std::ostringstream text;
    for (const MetricSet* set : sets_) {
      prometheus::TextSerializer().Serialize(text, MetricCollector(*set).Collect());
    }
    prometheus::TextSerializer().Serialize(text, ProcessCollector().Collect());
    return text.str();
  }

  std::optional<ControllerMetrics> controller_;
  std::optional<WorkerMetrics> worker_;
  std::optional<RpcMetrics> rpc_;
  std::vector<const MetricSet*> sets_;
};

TEST_F(MetricsTest, TheControllerStaysWithinItsBudgetWithEveryStatusCode) {
  StartController();
  const int64_t at_start = CountSeries(Text());
  for (const RpcMethod& method : kControllerMethods) {
    for (size_t code = 0; code < std::size(kRpcCodes); ++code) {
      rpc_->CallStarted(method.service, method.method);
      rpc_->CallEnded(method.service, method.method, static_cast<absl::StatusCode>(code),
                      absl::Milliseconds(1));
    }
  }
  const int64_t at_most = CountSeries(Text());
  RecordProperty("series_at_start", static_cast<int>(at_start));
  RecordProperty("series_at_most", static_cast<int>(at_most));
  EXPECT_EQ(at_most - at_start,
            static_cast<int64_t>(std::size(kControllerMethods) * (std::size(kRpcCodes) - 2)));
  EXPECT_LE(at_most, 2100);
}

TEST_F(MetricsTest, AWorkerStaysWithinItsBudgetWithEveryStatusCode) {
  StartWorker();
  for (const RpcMethod& method : kWorkerMethods) {
    for (size_t code = 0; code < std::size(kRpcCodes); ++code) {
      rpc_->CallEnded(method.service, method.method, static_cast<absl::StatusCode>(code),
                      absl::Milliseconds(1));
    }
  }
  const int64_t series = CountSeries(Text());
  RecordProperty("series", static_cast<int>(series));
  EXPECT_LE(series, 600);
}

TEST_F(MetricsTest, ControllerRecordsAreServed) {
  StartController();
  controller_->SetEpoch(7);
  controller_->SetWorkers(WorkerStateLabel::kSuspect, 3);
  controller_->SetWorkerSessions(4);
  controller_->WorkerRegistration(RegistrationResult::kResumed);
  controller_->WorkerLost(WorkerLossReason::kStreamClosed);
  controller_->Heartbeat(absl::Seconds(2));
  controller_->SetCommunicators(CommunicatorStateLabel::kReady, 6);
  controller_->CommunicatorMade(absl::Seconds(8));
  controller_->SetObjects(ObjectKind::kManifest, 5);
  controller_->PlanCacheRequest(CacheResult::kHit);
  controller_->PlanComputed("relay", absl::Milliseconds(3), 17);
  controller_->PlanUsed({.strategy = "relay", .network_bytes = 110, .least_network_bytes = 100});
  controller_->SetPlanCacheBytes(4096);
  controller_->SetPlansWaiting(9);
  controller_->PlanWaited(absl::Seconds(6));
  controller_->SetOperationsInProgress(RunningState::kVerifying, 2);
  controller_->Dispatched(absl::Milliseconds(2));
  controller_->OperationEnded({.strategy = "send_recv",
                               .result = OperationResult::kPartial,
                               .duration = absl::Seconds(4),
                               .destination_bytes = 1000,
                               .transfer = absl::Seconds(3),
                               .bound = absl::Seconds(2)});
  controller_->OperationEnded({.strategy = "unheard of"});

  const std::string text = Text();
  const auto value = [&](const std::string& name) {
    return ValueOf(text, "crossmesh_controller_" + name);
  };
  EXPECT_EQ(value("epoch"), 7);
  EXPECT_EQ(value(R"(workers{state="suspect"})"), 3);
  EXPECT_EQ(value(R"(workers{state="lost"})"), 0);
  EXPECT_EQ(value("worker_sessions"), 4);
  EXPECT_EQ(value(R"(worker_registrations_total{result="resumed"})"), 1);
  EXPECT_EQ(value(R"(worker_losses_total{reason="stream_closed"})"), 1);
  EXPECT_EQ(value(R"(heartbeat_interval_seconds_bucket{le="2"})"), 1);
  EXPECT_EQ(value(R"(heartbeat_interval_seconds_bucket{le="1"})"), 0);
  EXPECT_EQ(value(R"(communicators{state="ready"})"), 6);
  EXPECT_EQ(value("communicator_seconds_sum"), 8);
  EXPECT_EQ(value(R"(objects{kind="manifest"})"), 5);
  EXPECT_EQ(value(R"(plan_cache_requests_total{result="hit"})"), 1);
  EXPECT_EQ(value(R"(plan_compute_seconds_count{strategy="relay"})"), 1);
  EXPECT_EQ(value("plan_relays_sum"), 17);
  EXPECT_EQ(value(R"(plan_bytes_total{strategy="relay"})"), 110);
  EXPECT_EQ(value(R"(plan_least_bytes_total{strategy="relay"})"), 100);
  EXPECT_EQ(value("plan_cache_bytes"), 4096);
  EXPECT_EQ(value("plans_waiting"), 9);
  EXPECT_EQ(value("plan_wait_seconds_sum"), 6);
  EXPECT_EQ(value(R"(operations_in_progress{state="verifying"})"), 2);
  EXPECT_EQ(value("dispatch_seconds_count"), 1);
  EXPECT_EQ(value(R"(operations_total{result="partial",strategy="send_recv"})"), 1);
  EXPECT_EQ(value(R"(operations_total{result="committed",strategy="relay"})"), 0);
  EXPECT_EQ(value(R"(operation_seconds_sum{strategy="send_recv"})"), 4);
  EXPECT_EQ(value(R"(operation_bytes_total{strategy="send_recv"})"), 1000);
  EXPECT_EQ(value(R"(operation_transfer_seconds_total{strategy="send_recv"})"), 3);
  EXPECT_EQ(value(R"(operation_bound_seconds_total{strategy="send_recv"})"), 2);
  EXPECT_THAT(text, Not(HasSubstr("unheard of")));
}

TEST_F(MetricsTest, WorkerRecordsAreServed) {
  StartWorker();
  worker_->SetRegistered(true);
  worker_->SessionReconnect(ReconnectReason::kKeepalive);
  worker_->CommandRejected(CommandRejection::kStaleEpoch);
  worker_->Transferred(TransportLink::kUcxTcp, 10, 20);
  worker_->RelayEnded({.link = TransportLink::kUcxShm,
                       .kind = RelayKind::kForward,
                       .bytes = int64_t{1} << 27,
                       .duration = absl::Seconds(1)});
  worker_->RelayEnded({.kind = RelayKind::kCopy, .result = RelayResult::kAborted});
  worker_->SetRelaysInProgress(TransportKind::kInprocess, 6);
  worker_->PhaseTime(TransferPhase::kChecksum, absl::Milliseconds(1500));
  worker_->SetLastProgress(absl::FromUnixSeconds(1000));
  worker_->ChannelStalled(TransportLink::kUcxRdma);
  worker_->ChecksumFailed(TransportLink::kInprocessLocal);
  worker_->SetGpus(7, 1);
  worker_->GpuProcessLost();
  worker_->SetStagingBytes(1, 2);
  worker_->SetTensorBytes(3, 4, 5);

  const std::string text = Text();
  const auto value = [&](const std::string& name) {
    return ValueOf(text, "crossmesh_worker_" + name);
  };
  EXPECT_EQ(value("registered"), 1);
  EXPECT_EQ(value(R"(gpus{state="up"})"), 7);
  EXPECT_EQ(value(R"(gpus{state="down"})"), 1);
  EXPECT_EQ(value("gpu_processes_lost_total"), 1);
  EXPECT_EQ(value(R"(session_reconnects_total{reason="keepalive"})"), 1);
  EXPECT_EQ(value(R"(commands_rejected_total{reason="stale_epoch"})"), 1);
  EXPECT_EQ(value(R"(transfer_bytes_total{direction="send",link="tcp",transport="ucx"})"), 10);
  EXPECT_EQ(value(R"(transfer_bytes_total{direction="recv",link="tcp",transport="ucx"})"), 20);
  EXPECT_EQ(value(R"(relays_total{kind="forward",result="succeeded"})"), 1);
  EXPECT_EQ(value(R"(relays_total{kind="copy",result="aborted"})"), 1);
  EXPECT_EQ(value(R"(relay_seconds_count{transport="ucx"})"), 1);
  EXPECT_EQ(value(R"(relay_seconds_count{transport="inprocess"})"), 0);
  EXPECT_EQ(value(R"(relay_throughput_bytes_per_second_bucket{link="shm",le="134217728"})"), 1);
  EXPECT_EQ(value(R"(relay_throughput_bytes_per_second_bucket{link="shm",le="67108864"})"), 0);
  EXPECT_EQ(value(R"(relays_in_progress{transport="inprocess"})"), 6);
  EXPECT_EQ(value(R"(phase_seconds_total{phase="checksum"})"), 1.5);
  EXPECT_EQ(value("last_progress_timestamp_seconds"), 1000);
  EXPECT_EQ(value(R"(channel_stalls_total{link="rdma",transport="ucx"})"), 1);
  EXPECT_EQ(value(R"(checksum_failures_total{link="local",transport="inprocess"})"), 1);
  EXPECT_EQ(value(R"(staging_bytes{state="limit"})"), 2);
  EXPECT_EQ(value(R"(tensor_bytes{state="receiving"})"), 4);
  EXPECT_EQ(value(R"(tensor_bytes{state="shadow"})"), 5);
}

TEST_F(MetricsTest, CallsAreServedByMethodAndCode) {
  StartController();
  const std::string labels = R"(grpc_method="GetMesh",grpc_service="crossmesh.v1.MeshService")";
  rpc_->CallStarted("crossmesh.v1.MeshService", "GetMesh");
  EXPECT_EQ(ValueOf(Text(), "crossmesh_requests_in_flight{" + labels + "}"), 1);
  rpc_->CallEnded("crossmesh.v1.MeshService", "GetMesh", absl::StatusCode::kNotFound,
                  absl::Milliseconds(2));
  rpc_->CallStarted("grpc.reflection.v1alpha.ServerReflection", "ServerReflectionInfo");
  const std::string text = Text();
  EXPECT_EQ(ValueOf(text, "grpc_server_started_total{" + labels + "}"), 1);
  EXPECT_EQ(ValueOf(text, R"(grpc_server_handled_total{grpc_code="NOT_FOUND",)" + labels + "}"), 1);
  EXPECT_EQ(ValueOf(text, R"(grpc_server_handled_total{grpc_code="OK",)" + labels + "}"), 0);
  EXPECT_EQ(ValueOf(text, "grpc_server_handling_seconds_count{" + labels + "}"), 1);
  EXPECT_EQ(ValueOf(text, "crossmesh_requests_in_flight{" + labels + "}"), 0);
  EXPECT_THAT(text, Not(HasSubstr("Reflection")));
}

std::set<std::string> MethodsOf(const google::protobuf::FileDescriptor& file) {
  std::set<std::string> methods;
  for (int s = 0; s < file.service_count(); ++s) {
    for (int m = 0; m < file.service(s)->method_count(); ++m) {
      methods.insert(
          absl::StrCat(file.service(s)->full_name(), "/", file.service(s)->method(m)->name()));
    }
  }
  return methods;
}

TEST(RpcMethodsTest, EveryMethodOfTheApiIsCounted) {
  std::set<std::string> api;
  for (const auto* file :
       {v1::Controller::descriptor()->file(), v1::CreateMeshRequest::descriptor()->file(),
        v1::PutManifestRequest::descriptor()->file(), v1::Operation::descriptor()->file(),
        v1::PlanReshardRequest::descriptor()->file(), v1::Worker::descriptor()->file(),
        v1::ExecuteRequest::descriptor()->file(), v1::Network::descriptor()->file(),
        v1::OpenProbeRequest::descriptor()->file(), v1::GetPreflightRequest::descriptor()->file(),
        v1::PipelineRun::descriptor()->file(), v1::RunProgramRequest::descriptor()->file()}) {
    api.merge(MethodsOf(*file));
  }
  api.insert("grpc.health.v1.Health/Check");
  std::set<std::string> counted;
  for (const RpcMethod& method : kControllerMethods) {
    counted.insert(absl::StrCat(method.service, "/", method.method));
  }
  for (const RpcMethod& method : kWorkerMethods) {
    counted.insert(absl::StrCat(method.service, "/", method.method));
  }
  EXPECT_EQ(counted, api);
}

TEST(ExporterTest, OnlyLoopbackIsServed) {
  for (const char* address : {"0.0.0.0:0", "[::]:0"}) {
    EXPECT_THAT(MetricsExporter::Start({.address = address}),
                StatusIs(absl::StatusCode::kInvalidArgument,
                         AllOf(HasSubstr(address), HasSubstr("--insecure"))));
  }
}

TEST(ExporterTest, InsecurelyAnyNumericAddressIsServed) {
  ASSERT_OK_AND_ASSIGN(const auto exporter,
                       MetricsExporter::Start({.address = "0.0.0.0:0", .insecure = true}));
  EXPECT_THAT(exporter->address(), AllOf(StartsWith("0.0.0.0:"), Not(EndsWith(":0"))));
  for (const char* address : {"127.0.0.1", "127.0.0.1:x", "127.0.0.1:65536", "9400", "[::1:0",
                              "127.0.0.1,0.0.0.0:1", "+9400:1", "localhost.example.org:1"}) {
    EXPECT_THAT(MetricsExporter::Start({.address = address, .insecure = true}), IsRefused(address));
  }
}

TEST(ExporterTest, BuildProcessAndWhatIsRecordedAreServed) {
  const WorkerMetrics worker;
  ASSERT_OK_AND_ASSIGN(const auto exporter,
                       MetricsExporter::Start({.role = "worker", .insecure = true}));
  exporter->Serve(worker.metrics());
  const std::string text = BodyOf(Scrape(exporter->address()));
  EXPECT_EQ(ValueOf(text, "crossmesh_worker_registered"), 0);
  EXPECT_EQ(ValueOf(text, "crossmesh_insecure_enabled"), 1);
  EXPECT_EQ(ValueOf(text, absl::StrCat("crossmesh_build_info{revision=\"", Revision(),
                                       "\",role=\"worker\",version=\"", Version(), "\"}")),
            1);
  EXPECT_GE(ValueOf(text, "process_cpu_seconds_total"), 0);
  EXPECT_GT(ValueOf(text, "process_resident_memory_bytes"), 1e6);
  EXPECT_GE(ValueOf(text, "process_threads"), 2);
  EXPECT_GE(ValueOf(text, "process_open_fds"), 3);
  EXPECT_GT(ValueOf(text, "process_max_fds"), 3);
  EXPECT_GT(ValueOf(text, "process_start_time_seconds"), 1.6e9);
}

TEST(ExporterTest, AnAddressInUseIsAnError) {
  ASSERT_OK_AND_ASSIGN(const auto first, MetricsExporter::Start({}));
  EXPECT_THAT(first->address(), AllOf(StartsWith("127.0.0.1:"), Not(HasSubstr(":0"))));
  EXPECT_THAT(MetricsExporter::Start({.address = first->address()}),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr(first->address())));
}

// Runs `promtool check metrics` on the text; what it has to say, empty when it is content.
std::string CheckWithPromtool(const std::string& text, const std::string& path) {
  FILE* file = fopen(path.c_str(), "w");
  fputs(text.c_str(), file);
  fclose(file);
  FILE* pipe = popen(absl::StrCat("promtool check metrics < ", path, " 2>&1").c_str(), "r");
  std::string said;
  char buffer[256];
  while (fgets(buffer, sizeof(buffer), pipe) != nullptr) said += buffer;
  pclose(pipe);
  return said;
}

class PromtoolTest : public MetricsTest {
 protected:
  void SetUp() override {
    if (std::system("command -v promtool > /dev/null") != 0) {
      GTEST_SKIP() << "promtool is not installed (Debian package prometheus)";
    }
  }
  std::string Check() { return CheckWithPromtool(Text(), folder_.PathOf("metrics.txt")); }

  const TemporaryFolder folder_;
};

TEST_F(PromtoolTest, HasNothingToSayOfTheController) {
  StartController();
  EXPECT_EQ(Check(), "");
}

TEST_F(PromtoolTest, HasNothingToSayOfAWorker) {
  StartWorker();
  EXPECT_EQ(Check(), "");
}

}  // namespace
}  // namespace crossmesh
