// Runs of pipelines by the real programs: rehearsals, and processes that are killed, stopped, or
// never answer in the middle of an iteration.

#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/thread.h"
#include "common/testing/status_matchers.h"
#include "tests/live/following.h"
#include "tests/live/live_cluster.h"
#include "worker/worker.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

constexpr absl::Duration kBeginMax = absl::Seconds(20);
// From a loss to the end of the iteration, with a stall limit of a second.
constexpr absl::Duration kFailMax = absl::Seconds(15);

// A chain of stages, one for each host, the last one also with what the first one has.
v1::PipelineSpec SpecOf(const std::vector<std::string>& hosts, double seconds) {
  v1::PipelineSpec spec;
  spec.set_name("chain");
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    v1::Mesh& mesh = *spec.add_ranks()->mutable_inline_mesh();
    mesh.set_axes("x=1");
    mesh.set_devices(absl::StrCat(hosts[rank], ".0"));
    v1::PipelineStage& stage = *spec.add_stages();
    stage.set_rank(static_cast<int32_t>(rank));
    stage.set_forward_seconds(seconds);
    stage.set_input_gradient_seconds(seconds);
    stage.set_weight_gradient_seconds(seconds);
    v1::Host& host = *spec.mutable_topology()->add_hosts();
    host.set_name(hosts[rank]);
    v1::Nic& nic = *host.add_nics();
    nic.set_name("eth0");
    nic.set_out_bytes_per_second(1'250'000'000);
    nic.set_in_bytes_per_second(1'250'000'000);
  }
  const auto add_edge = [&spec](int32_t from, int32_t to) {
    v1::PipelineEdge& edge = *spec.add_edges();
    edge.set_from(from);
    edge.set_to(to);
    v1::PipelineTensor& tensor = *edge.add_tensors();
    tensor.mutable_tensor()->set_name(absl::StrCat("from_", from));
    tensor.mutable_tensor()->set_dtype("F32");
    tensor.mutable_tensor()->add_shape(2);
    tensor.mutable_tensor()->add_shape(128 << 10);
    tensor.set_batch_dimension(0);
    tensor.set_source_layout("[-, x]");
    tensor.set_destination_layout("[-, x]");
  };
  const auto last = static_cast<int32_t>(hosts.size()) - 1;
  for (int32_t stage = 0; stage < last; ++stage) add_edge(stage, stage + 1);
  if (last > 1) add_edge(0, last);
  v1::PipelineMicrobatches& many = *spec.add_microbatches();
  many.set_count(7);
  many.set_samples(2);
  v1::PipelineMicrobatches& uneven = *spec.add_microbatches();
  uneven.set_count(1);
  uneven.set_samples(1);
  return spec;
}

class PipelineTest : public testing::Test {
 protected:
  void StartCluster(const std::vector<std::string>& workers) {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = workers}));
  }

  static v1::StartPipelineRequest RequestFor(const v1::PipelineSpec& spec, int64_t iterations) {
    v1::StartPipelineRequest request;
    *request.mutable_inline_pipeline() = spec;
    request.mutable_choice()->set_schedule("eager_1f1b");
    request.set_request_id(NewRequestId());
    request.set_iterations(iterations);
    request.set_rehearsal(true);
    request.mutable_stall_limit()->set_seconds(1);
    return request;
  }

  std::unique_ptr<Following<v1::PipelineRun>> Run(const v1::StartPipelineRequest& request) {
    return std::make_unique<Following<v1::PipelineRun>>(
        [address = cluster_->controller_address(), request](
            Following<v1::PipelineRun>::OnChange on_change) -> absl::StatusOr<v1::PipelineRun> {
          ASSIGN_OR_RETURN(Client client, Client::Connect(address, {}));
          return client.StartPipeline(request, on_change);
        });
  }

  static int64_t Complete(const v1::PipelineRun& run) {
    return std::ranges::count_if(run.done(),
                                 [](const auto& iteration) { return iteration.error().empty(); });
  }
  // The second iteration runs, in all probability.
  static void WaitForFirst(Following<v1::PipelineRun>& run) {
    ASSERT_OK(run.WaitFor([](const v1::PipelineRun& now) { return Complete(now) >= 1; }, kBeginMax)
                  .status());
  }
  static v1::PipelineRun WaitForFailure(Following<v1::PipelineRun>& run) {
    const auto failed = run.WaitFor(
        [](const v1::PipelineRun& now) { return now.failed_iterations() >= 1; }, kFailMax);
    EXPECT_OK(failed.status());
    return failed.ok() ? *failed : v1::PipelineRun();
  }
  static std::string ErrorOf(const v1::PipelineRun& run) {
    for (const v1::PipelineIteration& iteration : run.done()) {
      if (!iteration.error().empty()) return iteration.error();
    }
    return "";
  }

  std::unique_ptr<LiveCluster> cluster_;
};

TEST_F(PipelineTest, ARehearsalIsMeasured) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1", "node-2"}));
  const auto run = Run(RequestFor(SpecOf(cluster_->workers(), 0.001), 4));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(Complete(done), 4);
  EXPECT_GT(done.median_seconds(), 8 * 0.003);
  ASSERT_EQ(done.measurement().ranks_size(), 3);
  for (const auto& rank : done.measurement().ranks()) EXPECT_EQ(rank.ops().name_size(), 16);
  // Three edges, two ways, two sizes of microbatches.
  ASSERT_EQ(done.measurement().transfers_size(), 12);
  for (const auto& transfer : done.measurement().transfers()) {
    EXPECT_EQ(transfer.messages().name_size(), transfer.samples() == 2 ? 7 : 1);
    EXPECT_GT(transfer.transfer_seconds(), 0);
    EXPECT_GT(transfer.first_byte_seconds(), 0);
  }
}

TEST_F(PipelineTest, BlockingTransfersRunAsPlanned) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1", "node-2"}));
  v1::StartPipelineRequest request = RequestFor(SpecOf(cluster_->workers(), 0.001), 2);
  request.mutable_choice()->set_schedule("1f1b");
  request.mutable_choice()->set_transfer_model("blocking");
  const auto run = Run(request);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(Complete(done), 2);
}

TEST_F(PipelineTest, AKilledWorkerFailsTheIterationAndTheNextOneRuns) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(SpecOf(cluster_->workers(), 0.05), 4));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Kill("node-1");
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("node-1"));
  EXPECT_THAT(ErrorOf(failed), HasSubstr("rank 0: "));
  ASSERT_OK(cluster_->StartWorker("node-1"));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_EQ(Complete(done), 3);
}

TEST_F(PipelineTest, AWorkerThatStandsStillFailsTheIterationAndTheNextOneRuns) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(SpecOf(cluster_->workers(), 0.05), 4));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Signal("node-1", SIGSTOP);
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("node-1"));
  cluster_->Signal("node-1", SIGCONT);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
}

TEST_F(PipelineTest, AWorkerThatStaysAwayFailsTheRun) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  v1::StartPipelineRequest request = RequestFor(SpecOf(cluster_->workers(), 0.05), 100);
  request.mutable_rejoin_limit()->set_seconds(1);
  const auto run = Run(request);
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  cluster_->Kill("node-1");
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(done.error(), HasSubstr("node-1"));
}

TEST_F(PipelineTest, ARunIsStoppedInTheMiddle) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  const auto run = Run(RequestFor(SpecOf(cluster_->workers(), 0.05), 1000));
  ASSERT_NO_FATAL_FAILURE(WaitForFirst(*run));
  ASSERT_OK_AND_ASSIGN(
      const v1::PipelineRun now,
      run->WaitFor([](const auto& found) { return !found.id().empty(); }, kBeginMax));
  EXPECT_OK(cluster_->client().StopPipelineRun(now.id(), /*now=*/true));
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_STOPPED);
}

TEST_F(PipelineTest, ADaemonComputesNothing) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({"node-0", "node-1"}));
  v1::StartPipelineRequest request = RequestFor(SpecOf(cluster_->workers(), 0.001), 1);
  request.set_rehearsal(false);
  const auto run = Run(request);
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_FAILED);
  EXPECT_THAT(done.error(), HasSubstr("expected a process that computes pipelines"));
}

// A process that embeds a worker and computes its rank. It answers nothing while it `hangs`.
class EmbeddingProcess {
 public:
  EmbeddingProcess(const std::string& name, const std::string& controller) {
    absl::StatusOr<std::unique_ptr<Worker>> worker = Worker::Create({.name = name,
                                                                     .devices = {{name, 0}},
                                                                     .controllers = {controller},
                                                                     .computes_pipelines = true});
    EXPECT_OK(worker.status());
    worker_ = *std::move(worker);
    thread_ = Thread("process", [this] { Compute(); });
  }
  ~EmbeddingProcess() {
    Answer();
    worker_->Stop(absl::ZeroDuration());
    thread_.Join();
  }

  void HangAt(const std::string& op) {
    MutexLock lock(mutex_);
    hangs_at_ = op;
  }
  void Answer() {
    MutexLock lock(mutex_);
    hangs_at_.clear();
    changed_.SignalAll();
  }
  int64_t complete() {
    MutexLock lock(mutex_);
    return complete_;
  }

 private:
  void Compute() {
    for (;;) {
      absl::StatusOr<std::unique_ptr<PipelineLoop>> loop = worker_->WaitForPipeline();
      if (!loop.ok()) return;
      for (PipelineStep step = (*loop)->Next(); step.kind != PipelineStep::Kind::kOver;
           step = (*loop)->Next()) {
        if (step.kind == PipelineStep::Kind::kOp) {
          WaitWhileItHangs(ToString(step.op->op));
          (*loop)->Done();
        } else {
          MutexLock lock(mutex_);
          complete_++;
        }
      }
    }
  }
  void WaitWhileItHangs(const std::string& op) {
    MutexLock lock(mutex_);
    while (hangs_at_ == op) changed_.Wait(mutex_);
  }

  std::unique_ptr<Worker> worker_;
  Thread thread_;
  Mutex mutex_;
  CondVar changed_;
  std::string hangs_at_ ABSL_GUARDED_BY(mutex_);
  int64_t complete_ ABSL_GUARDED_BY(mutex_) = 0;
};

TEST_F(PipelineTest, ProcessesThatEmbedWorkersComputeAndOneThatNeverAnswersIsNamed) {
  ASSERT_NO_FATAL_FAILURE(StartCluster({}));
  EmbeddingProcess first("node-0", cluster_->controller_address());
  EmbeddingProcess second("node-1", cluster_->controller_address());
  ASSERT_OK(cluster_->WaitForWorker("node-0", v1::WORKER_STATE_READY));
  ASSERT_OK(cluster_->WaitForWorker("node-1", v1::WORKER_STATE_READY));
  v1::StartPipelineRequest request = RequestFor(SpecOf({"node-0", "node-1"}, 0.001), 3);
  request.set_rehearsal(false);
  request.mutable_iteration_deadline()->set_seconds(2);
  second.HangAt("1F3");
  const auto run = Run(request);
  const v1::PipelineRun failed = WaitForFailure(*run);
  EXPECT_THAT(ErrorOf(failed), HasSubstr("computes 1F3"));
  second.Answer();
  ASSERT_OK_AND_ASSIGN(const v1::PipelineRun done, run->Result());
  EXPECT_EQ(done.state(), v1::PIPELINE_RUN_STATE_DONE) << done.error();
  EXPECT_EQ(done.failed_iterations(), 1);
  EXPECT_EQ(Complete(done), 2);
  EXPECT_EQ(first.complete(), 2);
}

}  // namespace
}  // namespace crossmesh
