#include "worker/gpu/process/child_environment.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::Field;
using ::testing::IsEmpty;
using ::testing::Not;

// What a process has when nobody wants anything else.
std::vector<std::string> Defaults() {
  std::vector<std::string> defaults;
  for (const ChildVariable& variable : ChildDefaults()) {
    defaults.push_back(absl::StrCat(variable.name, "=", variable.value));
  }
  return defaults;
}

std::vector<std::string> WithDefaults(std::vector<std::string> environment) {
  for (const std::string& variable : Defaults()) environment.push_back(variable);
  return environment;
}

TEST(ChildEnvironmentTest, OwnVariablesCountBeforeInheritedOnes) {
  const char* const inherited[] = {"HOME=/root", "A=2", "A", nullptr};
  EXPECT_THAT(ChildEnvironment({"A=1", "NCCL_COMM_BLOCKING=1"}, inherited),
              ElementsAreArray(WithDefaults({"A=1", "NCCL_COMM_BLOCKING=1", "HOME=/root"})));
}

TEST(ChildEnvironmentTest, VariablesThatChangeWhatCallsMeanAreNotInherited) {
  const char* const inherited[] = {"CUDA_LAUNCH_BLOCKING=1",
                                   "CUDA_DEVICE_MAX_CONNECTIONS=1",
                                   "CUDA_DEVICE_WAITS_ON_EXCEPTION=1",
                                   "NCCL_COMM_BLOCKING=1",
                                   "NCCL_COMM_ID=10.0.0.1:5",
                                   "NCCL_SOCKET_IFNAME=eth0",
                                   nullptr};
  EXPECT_THAT(ChildEnvironment({}, inherited),
              ElementsAreArray(WithDefaults({"NCCL_COMM_BLOCKING=0", "NCCL_SOCKET_IFNAME=eth0"})));
  EXPECT_EQ(VariablesNotInherited(inherited).size(), ChildVariables().size());
}

TEST(ChildEnvironmentTest, ADefaultGivesWayToWhatIsSet) {
  const char* const inherited[] = {"NCCL_BUFFSIZE=4194304", nullptr};
  const std::vector<std::string> environment =
      ChildEnvironment({"NCCL_MIN_P2P_NCHANNELS=1"}, inherited);
  EXPECT_THAT(environment, Contains("NCCL_BUFFSIZE=4194304"));
  EXPECT_THAT(environment, Not(Contains("NCCL_BUFFSIZE=2097152")));
  EXPECT_THAT(environment, Not(Contains("NCCL_MIN_P2P_NCHANNELS=64")));
  EXPECT_THAT(environment, Contains("NCCL_LL128_BUFFSIZE=1048576"));
  EXPECT_THAT(VariablesNotInherited(inherited), IsEmpty());
}

TEST(ChildEnvironmentTest, AVariableThatHasTheValueAlreadyIsNoNews) {
  const char* const inherited[] = {"NCCL_COMM_BLOCKING=0", "NCCL_COMM_ID=10.0.0.1:5", nullptr};
  EXPECT_THAT(VariablesNotInherited(inherited),
              ElementsAre(Field(&ChildVariable::name, "NCCL_COMM_ID")));
  const char* const none[] = {nullptr};
  EXPECT_THAT(VariablesNotInherited(none), IsEmpty());
}

}  // namespace
}  // namespace crossmesh
