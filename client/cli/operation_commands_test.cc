// Commands that follow, cancel and leave operations: the program against a controller that only
// plays them.

#include "client/cli/testing/program_run.h"
#include "client/testing/answers.h"
#include "common/rpc/server.h"
#include "common/rpc/server_streams.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/operation_service.grpc.pb.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kReshard =
    "reshard --manifest client/cli/testdata/small.json --source 'x=2 on a.0,b.0' "
    "--source-layout '[x, -]' --destination 'y=2 on c.0,d.0' --destination-layout '[-, y]'";

v1::Operation OperationIn(const std::string& id, v1::OperationState state) {
  v1::Operation operation;
  operation.set_id(id);
  operation.set_state(state);
  if (state == v1::OPERATION_STATE_COMMITTED || state == v1::OPERATION_STATE_RUNNING) {
    return operation;
  }
  operation.set_error("worker \"w\" is lost");
  operation.set_error_code(static_cast<int>(absl::StatusCode::kUnavailable));
  return operation;
}

// The state in which an operation of this id ends; one that is in none of these goes on.
v1::OperationState EndOf(const std::string& id) {
  if (id == "op-committed") return v1::OPERATION_STATE_COMMITTED;
  if (id == "op-partial") return v1::OPERATION_STATE_PARTIAL;
  if (id == "op-failed") return v1::OPERATION_STATE_FAILED;
  if (id == "op-cancelled") return v1::OPERATION_STATE_CANCELLED;
  return v1::OPERATION_STATE_RUNNING;
}

// Tells how the operation goes and then, unless it goes on, how it ends.
template <typename Response>
class PlayedStream final : public ServerWriteStream<Response> {
 public:
  using Stream = ServerWriteStream<Response>;

  static typename Stream::Reactor* Play(const std::string& id) {
    auto stream = std::make_shared<PlayedStream>();
    std::vector<v1::OperationState> states = {v1::OPERATION_STATE_RUNNING};
    if (EndOf(id) != v1::OPERATION_STATE_RUNNING) states.push_back(EndOf(id));
    for (const v1::OperationState state : states) {
      Response response;
      *response.mutable_operation() = OperationIn(id, state);
      stream->Send(std::move(response));
    }
    if (id == "op-lost") stream->End(absl::NotFoundError("operation op-lost"));
    if (EndOf(id) != v1::OPERATION_STATE_RUNNING) stream->End(absl::OkStatus());
    return Stream::Serve(stream);
  }

 private:
  void OnEnd() override {}
};

// The request id is the operation's.
class PlayedReshards final : public v1::ReshardService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::ExecuteReshardResponse>* ExecuteReshard(
      grpc::CallbackServerContext* /*context*/, const v1::ExecuteReshardRequest* request) override {
    return PlayedStream<v1::ExecuteReshardResponse>::Play(request->request_id());
  }
};

class PlayedOperations final : public v1::OperationService::CallbackService {
 public:
  grpc::ServerWriteReactor<v1::WatchOperationResponse>* WatchOperation(
      grpc::CallbackServerContext* /*context*/, const v1::WatchOperationRequest* request) override {
    return PlayedStream<v1::WatchOperationResponse>::Play(request->id());
  }

  grpc::ServerUnaryReactor* GetOperation(grpc::CallbackServerContext* context,
                                         const v1::GetOperationRequest* request,
                                         v1::GetOperationResponse* response) override {
    *response->mutable_operation() = OperationIn(request->id(), EndOf(request->id()));
    return Answer(context);
  }

  grpc::ServerUnaryReactor* CancelOperation(grpc::CallbackServerContext* context,
                                            const v1::CancelOperationRequest* /*request*/,
                                            v1::CancelOperationResponse* /*response*/) override {
    return Answer(context);
  }
};

class OperationCommandsTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    controller_ = " --controller " + address;
    ASSERT_OK_AND_ASSIGN(server_, RpcServer::Start({.addresses = {address},
                                                    .services = {&reshards_, &operations_}}));
  }

  ProgramResult Run(const std::string& arguments) { return Crossmesh(arguments + controller_); }

  const TemporaryFolder folder_;
  PlayedReshards reshards_;
  PlayedOperations operations_;
  std::unique_ptr<RpcServer> server_;
  std::string controller_;
};

TEST_F(OperationCommandsTest, TheExitStatusIsThatOfTheOutcome) {
  const std::vector<std::pair<std::string, int>> outcomes = {
      {"op-committed", 0}, {"op-failed", 1}, {"op-partial", 3}, {"op-cancelled", 4}};
  for (const auto& [id, status] : outcomes) {
    for (const char* command : {"wait", "watch", "watch --json", "wait --json"}) {
      const ProgramResult result = Run(absl::StrCat("operation ", command, " ", id));
      EXPECT_EQ(result.exit_status, status) << command << " " << id << ": " << result.error;
    }
    EXPECT_EQ(Run(absl::StrCat(kReshard, " --request-id ", id)).exit_status, status) << id;
  }
}

TEST_F(OperationCommandsTest, WhatTakesTooLongOrIsNotReachedHasAnExitStatusOfItsOwn) {
  const ProgramResult late = Run("operation wait op-endless --timeout 300ms");
  EXPECT_EQ(late.exit_status, 6);
  EXPECT_THAT(late.error, HasSubstr("operation op-endless may still be running"));
  EXPECT_EQ(Crossmesh("worker list --controller unix:" + folder_.PathOf("none")).exit_status, 5);
  EXPECT_EQ(Run("operation list --timeout soon").exit_status, 2);
}

TEST_F(OperationCommandsTest, WatchIsALineForEveryChange) {
  const ProgramResult result = Run("operation watch op-failed --json");
  const std::vector<std::string> lines = absl::StrSplit(result.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(lines.size(), 2) << result.out;
  EXPECT_EQ(nlohmann::json::parse(lines[0])["operation"]["state"], "OPERATION_STATE_RUNNING");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["operation"]["state"], "OPERATION_STATE_FAILED");

  const ProgramResult lost = Run("operation watch op-lost --json");
  const std::vector<std::string> told = absl::StrSplit(lost.out, '\n', absl::SkipEmpty());
  ASSERT_EQ(told.size(), 2) << lost.out;
  EXPECT_EQ(nlohmann::json::parse(told[1])["error"]["code"], "NOT_FOUND");
}

TEST_F(OperationCommandsTest, TheIdIsToldAtTheStart) {
  const ProgramResult result = Run(absl::StrCat(kReshard, " --request-id op-committed"));
  EXPECT_THAT(result.error, testing::StartsWith("operation op-committed\n"));
  // Only the document, for scripts.
  EXPECT_THAT(Run(absl::StrCat(kReshard, " --request-id op-committed --json")).error, IsEmpty());
}

TEST_F(OperationCommandsTest, AnOperationMayBeLeftToItself) {
  const std::string detached = absl::StrCat(kReshard, " --request-id op-endless --detach");
  const ProgramResult text = Run(detached);
  EXPECT_EQ(text.exit_status, 0) << text.error;
  EXPECT_EQ(text.out, "op-endless\n");
  EXPECT_EQ(nlohmann::json::parse(Run(detached + " --json").out)["id"], "op-endless");
}

TEST_F(OperationCommandsTest, AnInterruptSaysWhatGoesOnAndHowToReachIt) {
  // What the program says is read as it comes: first the id, then nothing, then the notice.
  const ProgramResult result =
      RunShell(absl::StrCat("mkfifo ", folder_.PathOf("said"), "; exec 3<>", folder_.PathOf("said"),
                            "; \"$CROSSMESH\" ", kReshard, " --request-id op-endless", controller_,
                            " 2>&3 & read -r line <&3; kill -INT $!; wait $!; status=$?; read -r "
                            "line <&3; "
                            "read -r line <&3; echo \"$line\"; exit $status"));
  EXPECT_EQ(result.exit_status, 130);
  EXPECT_THAT(result.out, AllOf(HasSubstr("operation op-endless goes on"),
                                HasSubstr("`crossmesh operation watch op-endless` follows it"),
                                HasSubstr("`crossmesh operation cancel op-endless` ends it")));
}

TEST_F(OperationCommandsTest, AnOperationIsCancelled) {
  EXPECT_EQ(Run("operation cancel op-endless").out, "operation op-endless is being cancelled\n");
}

}  // namespace
}  // namespace crossmesh
