// A client of several controllers, of which one leads.

#include "client/client.h"
#include "common/rpc/not_leader.h"
#include "common/rpc/server.h"
#include "common/rpc/status_codec.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "crossmesh/v1/mesh_service.grpc.pb.h"

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// A controller that knows meshes only: two of them, while it leads.
class MeshController final : public v1::MeshService::CallbackService {
 public:
  explicit MeshController(const std::string& address)
      : server_(*RpcServer::Start({.addresses = {address}, .services = {this}})) {}

  grpc::ServerUnaryReactor* ListMeshes(grpc::CallbackServerContext* context,
                                       const v1::ListMeshesRequest* /*request*/,
                                       v1::ListMeshesResponse* response) override {
    ++calls_;
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    if (leads_) {
      response->add_meshes()->set_name("a");
      response->add_meshes()->set_name("b");
      reactor->Finish(grpc::Status::OK);
    } else {
      reactor->Finish(ToGrpcStatus(NotLeaderError(leader_)));
    }
    return reactor;
  }

  void StandBy(std::optional<std::string> leader) {
    leader_ = std::move(leader);
    leads_ = false;
  }
  void Lead() { leads_ = true; }
  int calls() const { return calls_; }

 private:
  std::optional<std::string> leader_;  // before calls
  std::atomic<bool> leads_ = true;
  std::atomic<int> calls_ = 0;
  const std::unique_ptr<RpcServer> server_;
};

class SeveralControllersClientTest : public testing::Test {
 protected:
  Client ConnectTo(const std::string& addresses, absl::Duration retry_for = absl::Seconds(20)) {
    return *Client::Connect(addresses, {.retry_for = retry_for});
  }

  const TemporaryFolder folder_;
  const std::string a_ = absl::StrCat("unix:", folder_.PathOf("a"));
  const std::string b_ = absl::StrCat("unix:", folder_.PathOf("b"));
  const std::string away_ = absl::StrCat("unix:", folder_.PathOf("away"));
};

TEST_F(SeveralControllersClientTest, TheOneThatLeadsIsFoundAndStayedWith) {
  MeshController a(a_);
  MeshController b(b_);
  a.StandBy(b_);
  Client client = ConnectTo(absl::StrCat(a_, ",", b_));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(client.ListMeshes(), IsOkAndHolds(SizeIs(2)));
  EXPECT_EQ(a.calls(), 1);
  EXPECT_EQ(b.calls(), 3);
}

TEST_F(SeveralControllersClientTest, ALeaderThatIsNotInTheListIsFoundByItsName) {
  MeshController a(a_);
  const MeshController b(b_);
  a.StandBy(b_);
  EXPECT_THAT(ConnectTo(a_).ListMeshes(), IsOkAndHolds(SizeIs(2)));
}

TEST_F(SeveralControllersClientTest, OneThatIsAwayIsPassedOver) {
  const MeshController b(b_);
  EXPECT_THAT(ConnectTo(absl::StrCat(away_, ",", b_)).ListMeshes(), IsOkAndHolds(SizeIs(2)));
}

TEST_F(SeveralControllersClientTest, WhileNoneLeadsAllAreAskedAgain) {
  MeshController a(a_);
  a.StandBy(std::nullopt);
  Client client = ConnectTo(absl::StrCat(a_, ",", away_), absl::Seconds(2));
  EXPECT_THAT(client.ListMeshes(),
              StatusIs(absl::StatusCode::kUnavailable, AllOf(HasSubstr(a_), HasSubstr(away_))));
  EXPECT_GT(a.calls(), 1);
  a.Lead();
  EXPECT_OK(client.ListMeshes().status());
}

TEST_F(SeveralControllersClientTest, ALeaderThatMayNotBeSpokenToIsNot) {
  MeshController a(a_);
  a.StandBy("198.51.100.1:7400");
  EXPECT_THAT(ConnectTo(a_, absl::Seconds(1)).ListMeshes(),
              StatusIs(absl::StatusCode::kUnavailable));
  EXPECT_GT(a.calls(), 1);
}

TEST_F(SeveralControllersClientTest, EachAddressOfTheListIsLookedAt) {
  for (const std::string& wrong : {absl::StrCat(a_, ","), absl::StrCat(a_, ",nowhere"),
                                   absl::StrCat(a_, ",198.51.100.1:7400"), std::string()}) {
    EXPECT_THAT(Client::Connect(wrong, {}).status(), StatusIs(absl::StatusCode::kInvalidArgument))
        << wrong;
  }
}

}  // namespace
}  // namespace crossmesh
