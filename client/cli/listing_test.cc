// Lists and what is watched of them: pure, and by the program against a controller that plays one.

#include "client/cli/listing.h"

#include "client/cli/testing/program_run.h"
#include "client/testing/answers.h"
#include "common/rpc/server.h"
#include "common/testing/random_cases.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/worker_service.grpc.pb.h"

#include <atomic>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/string_view.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// What a reader of the changes holds to be there has to be what is there, however it changes.
TEST(ListChangesTest, WhoAppliesTheChangesHasTheList) {
  const uint64_t seed = FromEnvironment("CROSSMESH_TEST_SEED", 1);
  SCOPED_TRACE(absl::StrCat("CROSSMESH_TEST_SEED=", seed));
  std::mt19937_64 random(seed);
  ListChanges changes;
  std::map<std::string, std::string> read;
  for (int round = 0; round < 500; ++round) {
    std::vector<Listing::Item> items;
    std::map<std::string, std::string> there;
    for (int i = 0; i < 5; ++i) {
      const std::string name = absl::StrCat("w", i), state = absl::StrCat(random() % 2);
      if (random() % 3 == 0) continue;
      items.push_back({.name = name, .cells = {state}});
      there[name] = state;
    }
    const ListChanges::Changes found = changes.Update(items);
    for (const Listing::Item& item : found.changed) {
      const auto known = read.find(item.name);
      EXPECT_FALSE(known != read.end() && known->second == item.cells[0]) << "told for nothing";
      read[item.name] = item.cells[0];
    }
    for (const std::string& name : found.gone) EXPECT_EQ(read.erase(name), 1) << name;
    ASSERT_EQ(read, there) << "round " << round;
  }
}

// Each list is another one than the one before; after the last one there is an error.
class ListedWorkers final : public v1::WorkerService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ListWorkers(grpc::CallbackServerContext* context,
                                        const v1::ListWorkersRequest* /*request*/,
                                        v1::ListWorkersResponse* response) override {
    const int round = rounds_++;
    if (round == 3) return Answer(context, absl::InternalError("the play is over"));
    Add(*response, "a", v1::WORKER_STATE_READY);
    if (round == 0) Add(*response, "b", v1::WORKER_STATE_READY);
    if (round > 0) Add(*response, "c", v1::WORKER_STATE_DRAINING);
    return Answer(context);
  }

 private:
  static void Add(v1::ListWorkersResponse& response, const char* name, v1::WorkerState state) {
    v1::Worker& worker = *response.add_workers();
    worker.set_name(name);
    worker.set_state(state);
    worker.add_gpus()->set_device(absl::StrCat(name, ".0"));
  }

  std::atomic<int> rounds_ = 0;
};

class ListedMeshes final : public v1::MeshService::CallbackService {
 public:
  grpc::ServerUnaryReactor* GetMesh(grpc::CallbackServerContext* context,
                                    const v1::GetMeshRequest* request,
                                    v1::GetMeshResponse* response) override {
    response->mutable_mesh()->set_name(request->name());
    response->mutable_mesh()->set_axes("x=1");
    response->mutable_mesh()->set_devices("a.0");
    return Answer(context);
  }
};

// Operations that leave a list of the newest are still there.
class ListedOperations final : public v1::OperationService::CallbackService {
 public:
  grpc::ServerUnaryReactor* ListOperations(grpc::CallbackServerContext* context,
                                           const v1::ListOperationsRequest* /*request*/,
                                           v1::ListOperationsResponse* response) override {
    const int round = rounds_++;
    if (round == 2) return Answer(context, absl::InternalError("the play is over"));
    *response->add_operations() = OperationIn(v1::OPERATION_STATE_RUNNING);
    response->mutable_operations(0)->set_id(absl::StrCat("op-", round));
    return Answer(context);
  }

 private:
  std::atomic<int> rounds_ = 0;
};

class ListingTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    controller_ = " --controller " + address;
    ASSERT_OK_AND_ASSIGN(
        server_, RpcServer::Start(
                     {.addresses = {address}, .services = {&workers_, &meshes_, &operations_}}));
  }
  ProgramResult Run(const std::string& arguments) { return Crossmesh(arguments + controller_); }

  const TemporaryFolder folder_;
  ListedWorkers workers_;
  ListedMeshes meshes_;
  ListedOperations operations_;
  std::unique_ptr<RpcServer> server_;
  std::string controller_;
};

TEST_F(ListingTest, NamesAreWhatOtherCommandsTake) {
  EXPECT_EQ(Run("worker list --output name").out, "a\nb\n");
  EXPECT_EQ(Run("worker gpus -o name").out, "a.0\nc.0\n");
  EXPECT_EQ(Run("mesh show trainer -o name").out, "trainer\n");
  EXPECT_EQ(Run("operation list -o name").out, "op-0\n");
}

TEST_F(ListingTest, JsonIsTheOutputOfThatName) {
  const std::string by_output = Run("mesh show trainer --output json").out;
  EXPECT_EQ(nlohmann::json::parse(by_output)["mesh"]["name"], "trainer");
  EXPECT_EQ(Run("mesh show trainer --json").out, by_output);
  EXPECT_EQ(Run("mesh show trainer --json -o json").out, by_output);
  EXPECT_THAT(Run("mesh show trainer -o table").out, StartsWith("trainer, revision"));
}

TEST_F(ListingTest, AnOutputThatIsNoneIsAMistake) {
  for (const char* output : {"--output yaml", "-o yaml", "--json --output name"}) {
    const ProgramResult result = Run(absl::StrCat("worker list ", output));
    EXPECT_EQ(result.exit_status, 2) << output;
    EXPECT_THAT(result.error, HasSubstr("--output")) << output;
  }
  // In the form that was asked for, as far as it is known.
  EXPECT_EQ(nlohmann::json::parse(Run("worker list -o json --nonsense").out)["error"]["code"],
            "INVALID_ARGUMENT");
  EXPECT_EQ(nlohmann::json::parse(Run("worker list --output=json x").out)["error"]["code"],
            "INVALID_ARGUMENT");
}

TEST_F(ListingTest, OnlyWhatChangesIsPrintedAgain) {
  const ProgramResult result = Run("worker list --watch");
  EXPECT_EQ(result.exit_status, 1);
  EXPECT_THAT(result.error, HasSubstr("the play is over"));
  std::vector<std::string> names;
  for (absl::string_view line : absl::StrSplit(result.out, '\n')) {
    names.emplace_back(line.substr(0, line.find(' ')));
  }
  EXPECT_THAT(names, testing::ElementsAre("NAME", "----", "a", "b", "c", "b", ""));
  EXPECT_THAT(result.out, HasSubstr("b     GONE"));
}

TEST_F(ListingTest, AWatchInJsonIsADocumentInEachLine) {
  const ProgramResult result = Run("worker list -w --json");
  std::vector<std::string> told;
  for (absl::string_view line : absl::StrSplit(result.out, '\n', absl::SkipEmpty())) {
    const nlohmann::json document = nlohmann::json::parse(line);
    if (document.contains("worker")) told.push_back(document["worker"]["name"]);
    if (document.contains("gone")) told.push_back(absl::StrCat("-", std::string(document["gone"])));
    if (document.contains("error")) told.push_back(document["error"]["code"]);
  }
  EXPECT_THAT(told, testing::ElementsAre("a", "b", "c", "-b", "INTERNAL"));
}

TEST_F(ListingTest, WhatLeavesAListOfTheNewestIsNotGone) {
  EXPECT_EQ(Run("operation list --count 1 -w -o name").out, "op-0\nop-1\n");
}

TEST_F(ListingTest, AWatchEndsWhenItsTimeIsOver) {
  const ProgramResult result = Run("worker list --watch --timeout 100ms");
  EXPECT_EQ(result.exit_status, 6);
  EXPECT_THAT(result.error, HasSubstr("watched for 100ms"));
}

TEST_F(ListingTest, AWatchEndsWhenNothingTakesItsOutput) {
  EXPECT_EQ(RunShell(absl::StrCat("\"$CROSSMESH\" worker list -w", controller_, " > /dev/full"))
                .exit_status,
            1);
}

}  // namespace
}  // namespace crossmesh
