// Runs `crossmesh health` against a server of this process.

#include "client/cli/testing/program_run.h"
#include "common/rpc/server.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"

#include <fstream>
#include <memory>
#include <string>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

class HealthCommandTest : public testing::Test {
 protected:
  // Asks the daemon whose ready file would have this content.
  ProgramResult HealthOf(const std::string& ready, const std::string& flags = "") const {
    std::ofstream(folder_.PathOf("ready")) << ready;
    return Crossmesh(absl::StrCat("health ", folder_.PathOf("ready"), flags));
  }

  const TemporaryFolder folder_;
  const std::string address_ = "unix:" + folder_.PathOf("daemon.sock");
};

TEST_F(HealthCommandTest, ADaemonThatServesIsHealthyUntilItStops) {
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<RpcServer> server,
                       RpcServer::Start({.addresses = {address_}}));
  const std::string of_controller =
      nlohmann::json{{"addresses", nlohmann::json::array({address_})}}.dump();
  const std::string of_worker = nlohmann::json{{"execution_address", address_}}.dump();
  for (const std::string& ready : {of_controller, of_worker}) {
    const ProgramResult result = HealthOf(ready);
    EXPECT_EQ(result.exit_status, 0) << result.error;
    EXPECT_EQ(result.out, address_ + " serves\n");
  }
  const nlohmann::json expected = {{"address", address_}, {"serving", true}};
  EXPECT_EQ(nlohmann::json::parse(HealthOf(of_worker, " --json").out), expected);

  server->SetServing("", false);
  const ProgramResult stopping = HealthOf(of_worker);
  EXPECT_EQ(stopping.exit_status, 1);
  EXPECT_THAT(stopping.error, HasSubstr(address_ + " does not serve"));

  server->Shutdown(absl::ZeroDuration());
  EXPECT_EQ(HealthOf(of_worker).exit_status, 1);
}

TEST_F(HealthCommandTest, AFileThatIsNoReadyFileIsNamed) {
  for (const char* ready : {"", "{", "{}", R"({"addresses": []})", R"({"addresses": [7]})", "[]"}) {
    const ProgramResult result = HealthOf(ready);
    EXPECT_EQ(result.exit_status, 1) << ready;
    EXPECT_THAT(result.error, HasSubstr(folder_.PathOf("ready"))) << ready;
  }
  EXPECT_THAT(Crossmesh("health /nonexistent/ready").error, HasSubstr("/nonexistent/ready"));
}

}  // namespace
}  // namespace crossmesh
