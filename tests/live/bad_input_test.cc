// Bad input over the API: each is refused with a message that names the object, what was expected
// and what was found, and leaves everything as it was.

#include "common/testing/status_matchers.h"
#include "tests/live/live_cluster.h"
#include "tests/live/reshard_case.h"
#include "tests/live/running_reshard.h"

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kStorageBytes = 4 << 20;

class BadInputTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK_AND_ASSIGN(cluster_, LiveCluster::Start({.workers = {"node-0", "node-1"}}));
    ASSERT_OK_AND_ASSIGN(case_, ReshardCase::Create({.manifest = TensorsOf(kStorageBytes),
                                                     .destination = "on node-1.0",
                                                     .replica_axes = {}},
                                                    *cluster_));
  }

  // An operation's outcome, or the error of a request that was refused.
  absl::Status Outcome(const v1::ReshardSpec& spec) {
    const absl::StatusOr<v1::Operation> operation = Execute(cluster_->controller_address(), spec);
    return operation.ok() ? OutcomeOf(*operation) : operation.status();
  }

  void ExpectStillServes() {
    EXPECT_OK(Outcome(case_->spec()));
    EXPECT_OK(case_->CheckAll(1));
  }

  std::unique_ptr<LiveCluster> cluster_;
  std::unique_ptr<ReshardCase> case_;
};

struct BadSpec {
  std::string what;
  std::function<void(v1::ReshardSpec&)> spoil;
  std::vector<std::string> message_parts;
  absl::StatusCode code = absl::StatusCode::kInvalidArgument;
};

void SetLayout(v1::ReshardSide& side, const std::string& layout) {
  side.mutable_rules(0)->set_layout(layout);
}

void SetMesh(v1::ReshardSide& side, const std::string& axes, const std::string& devices) {
  side.mutable_inline_mesh()->set_axes(axes);
  side.mutable_inline_mesh()->set_devices(devices);
}

void SetOneTensor(v1::ReshardSpec& spec, const std::string& name, std::vector<int64_t> shape) {
  v1::Manifest& manifest = *spec.mutable_inline_manifest();
  manifest.clear_tensors();
  v1::TensorSpec& tensor = *manifest.add_tensors();
  tensor.set_name(name);
  tensor.set_dtype("F32");
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
}

const std::vector<BadSpec> kBadSpecs = {
    {"an unknown mesh",
     [](auto& spec) { spec.mutable_source()->set_mesh("atlantis"); },
     {"mesh", "atlantis"},
     absl::StatusCode::kNotFound},
    {"an unknown manifest",
     [](auto& spec) { spec.set_manifest("atlantis"); },
     {"manifest", "atlantis"},
     absl::StatusCode::kNotFound},
    {"an axis used twice",
     [](auto& spec) {
       SetMesh(*spec.mutable_source(), "data=2", "node-0.0,node-1.0");
       SetOneTensor(spec, "wte", {4, 4});
       SetLayout(*spec.mutable_source(), "[data, data]");
     },
     {"data"}},
    {"a dimension that does not divide",
     [](auto& spec) {
       SetMesh(*spec.mutable_source(), "data=2", "node-0.0,node-1.0");
       SetOneTensor(spec, "wte", {5, 4});
       SetLayout(*spec.mutable_source(), "[data, -]");
     },
     {"wte", "5", "2"}},
    {"a layout of another rank",
     [](auto& spec) {
       SetOneTensor(spec, "wte", {4, 4});
       SetLayout(*spec.mutable_destination(), "[-, -, -]");
     },
     {"wte", "3", "2"}},
    {"a size that overflows",
     [](auto& spec) { SetOneTensor(spec, "wte", {int64_t{1} << 40, int64_t{1} << 40}); },
     {"wte"}},
    {"a device in two slots",
     [](auto& spec) { SetMesh(*spec.mutable_source(), "data=2", "node-0.0,node-0.0"); },
     {"node-0.0"}},
    {"a tensor named twice",
     [](auto& spec) {
       SetOneTensor(spec, "wte", {4, 4});
       *spec.mutable_inline_manifest()->add_tensors() = spec.inline_manifest().tensors(0);
     },
     {"wte"}},
    {"a tensor that no rule matches",
     [](auto& spec) {
       SetOneTensor(spec, "wte", {4, 4});
       spec.mutable_source()->mutable_rules(0)->set_pattern("h.*");
     },
     {"wte"}},
    {"an unknown strategy",
     [](auto& spec) { spec.set_strategy("telepathy"); },
     {"telepathy", "relay"}},
    {"a replica axis that there is not",
     [](auto& spec) { spec.add_replica_axes("replica"); },
     {"replica"}},
    {"a device that no worker owns",
     [](auto& spec) { SetMesh(*spec.mutable_source(), "", "node-9.0"); },
     {"node-9.0"},
     absl::StatusCode::kFailedPrecondition},
    {"a destination without memory",
     [](auto& spec) { spec.mutable_destination()->set_storage("nowhere"); },
     {"node-1", "nowhere"},
     absl::StatusCode::kFailedPrecondition},
    // Of either side, whichever worker is the first to say so.
    {"storages of another size",
     [](auto& spec) { SetOneTensor(spec, "wte", {4, 4}); },
     {"storage", "expected 64 bytes"},
     absl::StatusCode::kFailedPrecondition},
};

TEST_F(BadInputTest, IsRefusedByNameAndHarmsNothing) {
  for (const BadSpec& bad : kBadSpecs) {
    v1::ReshardSpec spec = case_->spec();
    bad.spoil(spec);
    const absl::Status status = Outcome(spec);
    EXPECT_THAT(status, StatusIs(bad.code)) << bad.what;
    for (const std::string& part : bad.message_parts) {
      EXPECT_THAT(std::string(status.message()), HasSubstr(part)) << bad.what;
    }
  }
  ExpectStillServes();
}

TEST_F(BadInputTest, AZeroSizedDimensionIsLegalAndMovesNothing) {
  ASSERT_OK_AND_ASSIGN(
      const Manifest manifest,
      Manifest::Create({TensorSpec{.name = "empty",
                                   .shape = Shape::Create(std::vector<int64_t>{0, 8}).value()}}));
  ASSERT_OK_AND_ASSIGN(
      const auto empty,
      ReshardCase::Create({.manifest = manifest, .destination = "on node-1.0", .replica_axes = {}},
                          *cluster_));
  ASSERT_OK_AND_ASSIGN(const v1::Operation operation,
                       Execute(cluster_->controller_address(), empty->spec()));
  EXPECT_EQ(operation.state(), v1::OPERATION_STATE_COMMITTED) << operation.ShortDebugString();
  EXPECT_EQ(operation.report().destination_bytes(), 0);
}

TEST_F(BadInputTest, ARequestIdIsForOneContent) {
  v1::ExecuteReshardRequest request;
  *request.mutable_spec() = case_->spec();
  request.set_request_id("once");
  const auto ignore = [](const v1::Operation&) {};
  ASSERT_OK_AND_ASSIGN(const v1::Operation first, cluster_->client().Execute(request, ignore));
  ASSERT_OK_AND_ASSIGN(const v1::Operation again, cluster_->client().Execute(request, ignore));
  EXPECT_EQ(first.id(), again.id());
  request.mutable_spec()->set_strategy("send_recv");
  EXPECT_THAT(cluster_->client().Execute(request, ignore).status(),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("once")));
}

TEST_F(BadInputTest, AWorkerThatLeftOrDrainsIsNamed) {
  ASSERT_OK(cluster_->client().DrainWorker("node-1"));
  // Told to drain, with nothing to do, it leaves.
  EXPECT_TRUE(WaitUntil(absl::Seconds(20), [&] {
    const auto worker = cluster_->GetWorker("node-1");
    return absl::IsNotFound(worker.status()) ||
           (worker.ok() && worker->state() == v1::WORKER_STATE_LOST);
  }));
  EXPECT_THAT(Outcome(case_->spec()),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("node-1")));
}

TEST_F(BadInputTest, NamesAreTakenOnce) {
  v1::Mesh mesh;
  mesh.set_name("trainers");
  mesh.set_axes("data=2");
  mesh.set_devices("node-0.0,node-1.0");
  ASSERT_OK(cluster_->client().CreateMesh(mesh));
  EXPECT_OK(cluster_->client().CreateMesh(mesh));
  mesh.set_devices("node-1.0,node-0.0");
  EXPECT_THAT(cluster_->client().CreateMesh(mesh),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("trainers")));
  mesh.set_name("twins");
  mesh.set_devices("node-0.0,node-0.0");
  EXPECT_THAT(cluster_->client().CreateMesh(mesh),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("node-0.0")));
  mesh.set_devices("node-0.0");
  EXPECT_THAT(cluster_->client().CreateMesh(mesh),
              StatusIs(absl::StatusCode::kInvalidArgument, AllOf(HasSubstr("2"), HasSubstr("1"))));
}

}  // namespace
}  // namespace crossmesh
