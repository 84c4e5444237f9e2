// Changes of layout inside one mesh, by steps and with reductions, through daemons.

#include "client/cli/testing/program_run.h"
#include "common/testing/status_matchers.h"
#include "common/wire/tensor_codec.h"
#include "tests/live/live_cluster.h"
#include "tests/live/running_reshard.h"

#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

constexpr int64_t kRows = 1024;
constexpr int64_t kColumns = 2048;

// Four workers with a device each, x=2,y=2, of which each has a whole matrix of summands; each gets
// a quarter of the result, by rows.
class RedistributionTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"n-0", "n-1", "n-2", "n-3"}}));
    for (const std::string& worker : cluster_->workers()) ASSERT_OK(Prepare(worker));
    ASSERT_OK_AND_ASSIGN(const Mesh mesh, ParseMesh("x=2,y=2 on n-0.0,n-1.0,n-2.0,n-3.0"));
    ASSERT_OK_AND_ASSIGN(
        const Manifest manifest,
        Manifest::Create({{.name = "m", .shape = Shape::Create({{kRows, kColumns}}).value()}}));
    *spec_.mutable_inline_manifest() = ToProto(manifest);
    for (v1::ReshardSide* const side : {spec_.mutable_source(), spec_.mutable_destination()}) {
      *side->mutable_inline_mesh() = ToProto(mesh);
      side->add_rules()->set_pattern("*");
    }
    spec_.mutable_source()->set_storage("summands");
    spec_.mutable_source()->mutable_rules(0)->set_layout("[-, -]");
    spec_.mutable_destination()->set_storage("shards");
    spec_.mutable_destination()->mutable_rules(0)->set_layout("[x*y, -]");
    spec_.mutable_redistribution()->add_source_partial("x");
    spec_.mutable_redistribution()->add_source_partial("y");
  }

  // Small whole numbers, whose sums are exact in any order.
  static float Summand(int64_t worker, int64_t element) {
    return static_cast<float>((element * 7 + worker * 13) % 101 - 50);
  }
  static float Sum(int64_t element) {
    float sum = 0;
    for (int64_t worker = 0; worker < 4; ++worker) sum += Summand(worker, element);
    return sum;
  }

  absl::Status Prepare(const std::string& worker) {
    auto memory = cluster_->Memory(worker);
    if (!memory.ok()) return memory.status();
    const std::string device = absl::StrCat(worker, ".0");
    auto summands = memory->Create("summands", device, kRows * kColumns * 4);
    if (!summands.ok()) return summands.status();
    auto* const elements = reinterpret_cast<float*>(summands->bytes().data());
    for (int64_t i = 0; i < kRows * kColumns; ++i) elements[i] = Summand(worker[2] - '0', i);
    sources_.insert_or_assign(worker, std::make_unique<MappedStorage>(*std::move(summands)));
    auto shards = memory->Create("shards", device, kRows * kColumns);
    if (!shards.ok()) return shards.status();
    std::memset(shards->bytes().data(), 1, shards->bytes().size());
    return absl::OkStatus();
  }

  // What differs in the shards of a worker from `value(element)`, as they are now.
  template <typename Value>
  int64_t Wrong(const std::string& worker, Value value) const {
    const absl::StatusOr<MappedStorage> now =
        OpenStorage(cluster_->PathOf(worker + ".memory"), "shards", absl::StrCat(worker, ".0"));
    if (!now.ok()) return -1;
    const int64_t count = kRows * kColumns / 4;
    const auto* const elements = reinterpret_cast<const float*>(now->bytes().data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (elements[i] != value((worker[2] - '0') * count + i)) ++wrong;
    }
    return wrong;
  }

  void ExpectSums() {
    for (const std::string& worker : cluster_->workers())
      EXPECT_EQ(Wrong(worker, Sum), 0) << worker;
  }
  // Under shadow the old version is what readers see.
  void ExpectOldShards(const std::vector<std::string>& workers) {
    float old = 0;
    std::memset(&old, 1, sizeof(old));
    for (const std::string& worker : workers) {
      EXPECT_EQ(Wrong(worker, [&](int64_t) { return old; }), 0) << worker;
    }
  }
  void ExpectSourcesIntact() {
    for (const auto& [worker, storage] : sources_) {
      const auto* const elements = reinterpret_cast<const float*>(storage->bytes().data());
      int64_t wrong = 0;
      for (int64_t i = 0; i < kRows * kColumns; ++i) {
        if (elements[i] != Summand(worker[2] - '0', i)) ++wrong;
      }
      EXPECT_EQ(wrong, 0) << worker;
    }
  }
  void ExpectMetric(const std::string& metric, const std::string& labels, double value) {
    double found = -1;
    EXPECT_TRUE(WaitUntil(absl::Seconds(20),
                          [&] {
                            found = cluster_->Metric("n-0", metric, labels).value_or(-1);
                            return found == value;
                          }))
        << metric << ": " << found;
  }
  void ExpectBuffersGivenBack() {
    for (const std::string& worker : cluster_->workers()) {
      EXPECT_TRUE(WaitUntil(absl::Seconds(20), [&] {
        const absl::StatusOr<v1::Worker> now = cluster_->GetWorker(worker);
        const absl::StatusOr<double> staging =
            cluster_->Metric(worker, "crossmesh_worker_staging_bytes", R"(state="used")");
        return now.ok() && now->running_tasks() == 0 && staging.ok() && *staging == 0;
      })) << worker;
    }
  }
  absl::StatusOr<v1::Operation> Run() { return Execute(cluster_->controller_address(), spec_); }

  std::unique_ptr<LiveCluster> cluster_;
  v1::ReshardSpec spec_;
  std::map<std::string, std::unique_ptr<MappedStorage>> sources_;
};

TEST_F(RedistributionTest, SumsOfAllWorkersComeToShards) {
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Run());
  ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  ExpectSums();
  ExpectSourcesIntact();
  EXPECT_EQ(operation.report().destination_bytes(), kRows * kColumns * 4);
  EXPECT_THAT(operation.report().search(), HasSubstr("summands in the order of their coordinates"));
  // Each reduces a quarter of four matrices.
  ExpectMetric("crossmesh_worker_reduced_bytes_total", "", kRows * kColumns * 4);
  ExpectMetric("crossmesh_worker_tensor_bytes", R"(state="array")", 0);
  ASSERT_OK_AND_ASSIGN(
      const double steps,
      cluster_->Metric("n-0", "crossmesh_worker_course_steps_total", R"(kind="reduce_scatter")"));
  EXPECT_GT(steps, 0);
}

TEST_F(RedistributionTest, AMeanComesToAllOfThem) {
  spec_.mutable_redistribution()->set_reduction("mean");
  spec_.mutable_destination()->mutable_rules(0)->set_layout("[-, -]");
  spec_.mutable_destination()->set_storage("means");
  spec_.set_create_destination(true);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Run());
  ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  for (const std::string& worker : cluster_->workers()) {
    ASSERT_OK_AND_ASSIGN(
        const MappedStorage means,
        OpenStorage(cluster_->PathOf(worker + ".memory"), "means", absl::StrCat(worker, ".0")));
    const auto* const elements = reinterpret_cast<const float*>(means.bytes().data());
    int64_t wrong = 0;
    for (int64_t i = 0; i < kRows * kColumns; ++i) {
      if (elements[i] != Sum(i) / 4) ++wrong;
    }
    EXPECT_EQ(wrong, 0) << worker;
  }
}

// Slowed down, so that there is something to disturb, and sums go from worker to worker.
TEST_F(RedistributionTest, AWorkerThatIsKilledEndsItAndTheNextOneWorks) {
  spec_.set_nic_share(0.001);
  RunningReshard running(cluster_->controller_address(), spec_);
  ASSERT_OK(running.WaitUntilRunning().status());
  cluster_->Kill("n-2");
  ASSERT_OK_AND_ASSIGN(
      const v1::Operation operation,
      running.WaitFor(
          [](const v1::Operation& now) { return now.state() == v1::OPERATION_STATE_FAILED; },
          absl::Seconds(30)));
  EXPECT_THAT(operation.report().search(), HasSubstr("summands round rings"));
  EXPECT_THAT(operation.replicas(0).error(), HasSubstr("n-2"));
  ExpectOldShards({"n-0", "n-1", "n-3"});
  sources_.erase("n-2");
  ExpectSourcesIntact();

  ASSERT_OK(cluster_->StartWorker("n-2"));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ASSERT_OK(Prepare("n-2"));
  spec_.set_nic_share(0);
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Run());
  ASSERT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
  ExpectSums();
}

TEST_F(RedistributionTest, AWorkerThatStopsIsBlamedAndBuffersAreGivenBack) {
  spec_.set_nic_share(0.001);
  spec_.mutable_stall_limit()->set_seconds(1);
  RunningReshard running(cluster_->controller_address(), spec_);
  ASSERT_OK(running.WaitUntilRunning().status());
  cluster_->Signal("n-1", SIGSTOP);
  ASSERT_OK_AND_ASSIGN(
      const v1::Operation operation,
      running.WaitFor(
          [](const v1::Operation& now) { return now.state() == v1::OPERATION_STATE_FAILED; },
          absl::Seconds(60)));
  EXPECT_THAT(operation.report().search(), HasSubstr("summands round rings"));
  EXPECT_THAT(operation.replicas(0).error(), HasSubstr("n-1"));
  ExpectOldShards({"n-0", "n-2", "n-3"});
  cluster_->Signal("n-1", SIGCONT);
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ExpectBuffersGivenBack();
  ExpectOldShards(cluster_->workers());
  ExpectSourcesIntact();
  spec_.set_nic_share(0);
  spec_.clear_stall_limit();
  ASSERT_OK_AND_ASSIGN(const v1::Operation next, Run());
  ASSERT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
  ExpectSums();
}

// Whether a worker has given its first pages back: they read as zeros.
bool IsReleased(const MappedStorage& summands) {
  return *reinterpret_cast<const volatile float*>(summands.bytes().data()) == 0;
}

TEST_F(RedistributionTest, ASourceThatIsGivenUpIsGoneAfterwards) {
  spec_.mutable_redistribution()->set_release_source(true);
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation, Run());
  ASSERT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  ExpectSums();
  for (const auto& [worker, storage] : sources_) {
    EXPECT_TRUE(IsReleased(*storage)) << worker;
    EXPECT_THAT(OpenStorage(cluster_->PathOf(worker + ".memory"), "summands", worker + ".0"),
                StatusIs(absl::StatusCode::kNotFound))
        << worker;
  }
}

// What has given memory back is named, and is DIRTY until its owner fills it anew.
class ReleasingRedistributionTest : public RedistributionTest {
 protected:
  // Until n-2 is sent the signal, when others have given their first pages back.
  void FailWhileReleasing(int signal) {
    spec_.mutable_redistribution()->set_release_source(true);
    // In two steps: memory is given back after the first, long before anything is committed.
    spec_.mutable_redistribution()->set_method("one_axis");
    spec_.set_nic_share(0.0005);
    RunningReshard running(cluster_->controller_address(), spec_);
    ASSERT_OK(running.WaitUntilRunning().status());
    ASSERT_TRUE(WaitUntil(absl::Seconds(30), [&] { return IsReleased(*sources_.at("n-0")); }));
    signal == SIGKILL ? cluster_->Kill("n-2") : cluster_->Signal("n-2", signal);
    ASSERT_OK_AND_ASSIGN(
        const v1::Operation operation,
        running.WaitFor(
            [](const v1::Operation& now) { return now.state() == v1::OPERATION_STATE_FAILED; },
            absl::Seconds(60)));
    EXPECT_THAT(operation.replicas(0).error(), HasSubstr("n-2"));
    std::vector<std::string> dirty;
    for (const v1::TaskReport& task : operation.report().workers()) {
      dirty.insert(dirty.end(), task.released_sources().begin(), task.released_sources().end());
    }
    EXPECT_THAT(dirty, Contains("n-0.0"));
    sources_.clear();
    spec_.set_nic_share(0);
    spec_.clear_stall_limit();
  }

  void ExpectDirtyUntilFilledAnew(const std::vector<std::string>& workers) {
    ASSERT_OK_AND_ASSIGN(const v1::Operation refused, Run());
    EXPECT_THAT(refused.error(), HasSubstr("is DIRTY"));
    for (const std::string& worker : workers) {
      ASSERT_OK_AND_ASSIGN(MemoryClient memory, cluster_->Memory(worker));
      ASSERT_OK(memory.Delete("summands", worker + ".0"));
      ASSERT_OK(Prepare(worker));
    }
    ASSERT_OK_AND_ASSIGN(const v1::Operation next, Run());
    ASSERT_EQ(next.state(), v1::OPERATION_STATE_COMMITTED) << next.ShortDebugString();
    ExpectSums();
  }
};

TEST_F(ReleasingRedistributionTest, AWorkerThatIsKilledLeavesSourcesDirtyAndNamed) {
  ASSERT_NO_FATAL_FAILURE(FailWhileReleasing(SIGKILL));
  ASSERT_OK(cluster_->StartWorker("n-2"));
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ASSERT_OK(Prepare("n-2"));
  ExpectDirtyUntilFilledAnew({"n-0", "n-1", "n-3"});
}

TEST_F(ReleasingRedistributionTest, AWorkerThatStopsLeavesSourcesDirtyAndNamed) {
  spec_.mutable_stall_limit()->set_seconds(1);
  ASSERT_NO_FATAL_FAILURE(FailWhileReleasing(SIGSTOP));
  cluster_->Signal("n-2", SIGCONT);
  ASSERT_OK(cluster_->WaitForAllWorkers());
  ExpectBuffersGivenBack();
  ExpectDirtyUntilFilledAnew(cluster_->workers());
}

// Without storages it plans, with them it runs.
TEST_F(RedistributionTest, TheCommandRunsWhereStoragesAreNamed) {
  const std::string command = absl::StrCat(
      "redistribute --mesh 'x=2,y=2 on n-0.0,n-1.0,n-2.0,n-3.0' --shape '[1024, 2048]' ",
      "--source '[-, -]' --destination '[x*y, -]' --source-partial x,y --controller ",
      cluster_->controller_address(), " ");
  EXPECT_THAT(Crossmesh(command).out, HasSubstr("reduce_scatter"));
  const ProgramResult tight = Crossmesh(
      absl::StrCat(command, "--source-storage summands --destination-storage shards --cap 1000"));
  EXPECT_THAT(tight.error, HasSubstr("expected at least "));
  const ProgramResult run =
      Crossmesh(absl::StrCat(command, "--source-storage summands --destination-storage shards"));
  EXPECT_EQ(run.exit_status, 0) << run.error;
  EXPECT_THAT(run.out, HasSubstr("COMMITTED"));
  ExpectSums();
}

TEST_F(RedistributionTest, WhatCannotBeIsRefusedByName) {
  const auto refused = [&](const v1::ReshardSpec& spec) {
    v1::PlanReshardRequest request;
    *request.mutable_spec() = spec;
    return cluster_->client().Plan(request).status();
  };
  v1::ReshardSpec spec = spec_;
  spec.set_device_bytes_max(1 << 20);
  EXPECT_THAT(refused(spec),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("between steps")));
  spec = spec_;
  spec.mutable_redistribution()->set_source_partial(0, "z");
  EXPECT_THAT(refused(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("z")));
  spec = spec_;
  spec.mutable_source()->mutable_rules(0)->set_layout("[x, -]");
  EXPECT_THAT(refused(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("partial")));
  spec = spec_;
  spec.mutable_redistribution()->set_reduction("product");
  EXPECT_THAT(refused(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("product")));
  spec = spec_;
  spec.mutable_redistribution()->clear_source_partial();
  spec.mutable_redistribution()->add_destination_partial("x");
  EXPECT_THAT(refused(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("partial")));
  spec = spec_;
  spec.mutable_inline_manifest()->mutable_tensors(0)->set_dtype("BOOL");
  EXPECT_THAT(refused(spec), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("BOOL")));
  spec = spec_;
  spec.mutable_redistribution()->set_release_source(true);
  spec.set_binding(v1::BINDING_MODE_SHADOW);
  EXPECT_THAT(refused(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("release_source")));
  spec = spec_;
  spec.set_strategy("relay");
  EXPECT_THAT(refused(spec),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("redistribut")));
}

}  // namespace
}  // namespace crossmesh
