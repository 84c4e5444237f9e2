#include "worker/gpu/process/child_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

TEST(ChildEnvironmentTest, OwnVariablesCountBeforeInheritedOnes) {
  const char* const inherited[] = {"HOME=/root", "A=2", "A", nullptr};
  EXPECT_THAT(ChildEnvironment({"A=1", "NCCL_COMM_BLOCKING=1"}, inherited),
              ElementsAre("A=1", "NCCL_COMM_BLOCKING=1", "HOME=/root"));
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
              ElementsAre("NCCL_COMM_BLOCKING=0", "NCCL_SOCKET_IFNAME=eth0"));
  EXPECT_EQ(VariablesNotInherited(inherited).size(), ChildVariables().size());
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
