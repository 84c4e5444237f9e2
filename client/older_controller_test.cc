// A client of this release and a controller of the one before: what that lacks is refused by name,
// and nothing is done that was not asked for.

#include "client/client.h"
#include "common/base/version.h"
#include "common/rpc/server.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/reshard_service.grpc.pb.h"

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Reads of a request what it knows, which redistributions are not.
class OlderReshards final : public v1::ReshardService::CallbackService {
 public:
  grpc::ServerUnaryReactor* PlanReshard(grpc::CallbackServerContext* context,
                                        const v1::PlanReshardRequest* request,
                                        v1::PlanReshardResponse* /*response*/) override {
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    const std::string& strategy = request->spec().strategy();
    reactor->Finish(strategy.empty() || strategy == "relay"
                        ? grpc::Status::OK
                        : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT,
                                       absl::StrCat("no strategy \"", strategy, "\"")));
    return reactor;
  }
};

class OlderControllerTest : public testing::Test {
 protected:
  void SetUp() override {
    const std::string address = absl::StrCat("unix:", folder_.PathOf("controller.sock"));
    ASSERT_OK_AND_ASSIGN(server_,
                         RpcServer::Start({.addresses = {address}, .services = {&reshards_}}));
    ASSERT_OK_AND_ASSIGN(client_, Client::Connect(address, {}));
  }

  const TemporaryFolder folder_;
  OlderReshards reshards_;
  std::unique_ptr<RpcServer> server_;
  absl::StatusOr<Client> client_;
};

TEST_F(OlderControllerTest, ARedistributionIsNotTakenForAReshard) {
  v1::PlanReshardRequest request;
  EXPECT_OK(client_->Plan(request).status());
  request.mutable_spec()->mutable_redistribution()->add_source_partial("x");
  EXPECT_THAT(client_->Plan(request),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("redistributions"), HasSubstr("upgrade the controller"),
                             HasSubstr(absl::StrCat("version ", Version())))));
  // What is wrong in a request that it knows is told as it is.
  request.mutable_spec()->clear_redistribution();
  request.mutable_spec()->set_strategy("slow");
  EXPECT_THAT(client_->Plan(request), StatusIs(absl::StatusCode::kInvalidArgument));
}

TEST_F(OlderControllerTest, ACallThatItDoesNotHaveIsExplained) {
  EXPECT_THAT(client_->GetController(),
              StatusIs(absl::StatusCode::kUnimplemented,
                       AllOf(HasSubstr(client_->address()),
                             HasSubstr(absl::StrCat("version ", Version())))));
}

}  // namespace
}  // namespace crossmesh
