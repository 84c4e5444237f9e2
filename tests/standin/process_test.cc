// What needs a process of its own: the environment, which is read once.

#include "common/base/status_macros.h"
#include "common/testing/status_matchers.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in_gpu.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::string ReadFile(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

std::string RunOne(absl::FunctionRef<absl::Status()> body) {
  return RunRanks(1, [&](int, Meeting&) { return body(); })[0];
}

TEST(ProcessTest, NothingIsCalledBeforeInit) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                int count = 0;
                return stand_in->Check(stand_in->driver().cuDeviceGetCount(&count), "");
              }),
              HasSubstr("cuDeviceGetCount: cuInit has not been called"));
}

TEST(ProcessTest, AMachineMayHaveNoDevice) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_DEVICES", "0", 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                return stand_in->Check(stand_in->driver().cuInit(0), "cuInit");
              }),
              AllOf(HasSubstr("FAILED_PRECONDITION"), HasSubstr("CUDA_ERROR_NO_DEVICE")));
}

TEST(ProcessTest, AnOldNcclIsNotLoaded) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_NCCL_VERSION", "2.27.7", 1);
                return StandIn::Load().status();
              }),
              AllOf(HasSubstr("NCCL 2.27.7"), HasSubstr("expected version 2.28.9 or later")));
}

TEST(ProcessTest, TheReportHasWhatWasDoneWrongAndTheLogWhatWasCalled) {
  const TemporaryFolder folder;
  const std::string report = folder.PathOf("report");
  const std::string log = folder.PathOf("log");
  EXPECT_THAT(RunOne([&]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_REPORT", report.c_str(), 1);
                setenv("CROSSMESH_STANDIN_LOG", log.c_str(), 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                stand_in->driver().cuStreamSynchronize(nullptr);
                return absl::OkStatus();
              }),
              IsEmpty());
  EXPECT_THAT(ReadFile(report), AllOf(HasSubstr("Crossmesh stand-in, process "),
                                      HasSubstr("cuStreamSynchronize: a default stream")));
  EXPECT_THAT(ReadFile(log), AllOf(HasSubstr("\tcuInit\t"), HasSubstr("\tcuStreamSynchronize\t"),
                                   HasSubstr("\tcuDevicePrimaryCtxRelease")));
}

TEST(ProcessTest, FaultsComeFromTheEnvironment) {
  EXPECT_THAT(RunOne([]() -> absl::Status {
                setenv("CROSSMESH_STANDIN_FAULTS", "out_of_memory_at=1", 1);
                ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
                ASSIGN_OR_RETURN(const auto gpu, StandInGpu::Create(*stand_in));
                return gpu->Allocate(100).status();
              }),
              HasSubstr("injected fault out_of_memory_at"));
}

}  // namespace
}  // namespace crossmesh
