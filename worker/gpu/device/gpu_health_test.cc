// A GPU that this process can do nothing more with: in a process of its own, which ends with it.

#include "common/base/status_macros.h"
#include "tests/standin/rank_processes.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// For what GoogleTest cannot report, since it is in another process than the test.
absl::Status Expect(bool is_so, absl::string_view what) {
  return is_so ? absl::OkStatus() : absl::UnknownError(absl::StrCat("expected: ", what));
}

// Polls until the event is done, or the GPU has failed.
absl::Status Await(GpuEvent& event) {
  while (true) {
    ASSIGN_OR_RETURN(const bool is_done, event.IsDone());
    if (is_done) return absl::OkStatus();
    std::this_thread::yield();
  }
}

absl::Status LoseGpu(const std::string& faults) {
  setenv("CROSSMESH_STANDIN_KERNELS", StandInKernelsPath().c_str(), 1);
  ASSIGN_OR_RETURN(const auto stand_in, StandIn::Load());
  ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(stand_in->driver()));
  ASSIGN_OR_RETURN(auto gpu, Gpu::Create(stand_in->driver(), uuids.at(0)));
  ASSIGN_OR_RETURN(auto stream, GpuStream::Create(*gpu));
  ASSIGN_OR_RETURN(auto event, GpuEvent::Create(*gpu));
  RETURN_IF_ERROR(stand_in->SetFaults(faults));
  const auto pack = gpu->KernelNamed<PackArguments>("crossmesh_pack");
  RETURN_IF_ERROR(gpu->Launch(pack, 1, {}, *stream));
  // The launch itself went well. Whether this record sees the error is a matter of time.
  RETURN_IF_ERROR(Expect(gpu->health().ok(), "a GPU in health"));
  absl::Status lost = event->Record(*stream);
  if (lost.ok()) lost = Await(*event);
  RETURN_IF_ERROR(Expect(gpu->health() == lost, "the error to be kept"));
  RETURN_IF_ERROR(Expect(gpu->Memory().status() == lost, "every call to give it"));
  RETURN_IF_ERROR(Expect(gpu->Launch(pack, 1, {}, *stream) == lost, "no more launches"));
  event.reset();
  stream.reset();
  gpu.reset();
  RETURN_IF_ERROR(Expect(stand_in->Violations().empty(), "nothing done wrong"));
  return lost;
}

TEST(GpuHealthTest, AKernelThatTouchesMemoryWhichIsNotThereTakesTheGpuFromTheProcess) {
  const std::string found =
      RunRanks(1, [](int, Meeting&) { return LoseGpu("illegal_address_at=1"); })[0];
  EXPECT_THAT(found, AllOf(HasSubstr("GPU-7374616e-6469-6e00-0000-000000000000"),
                           HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)")));
}

// The driver has no result of its own for that.
TEST(GpuHealthTest, AGpuThatFellOffTheBusIsGoneFromTheProcess) {
  for (const auto& [result, name] :
       {std::pair(999, "CUDA_ERROR_UNKNOWN (999)"), std::pair(4, "CUDA_ERROR_DEINITIALIZED (4)")}) {
    const std::string faults = absl::StrCat("illegal_address_at=1,broken_result=", result);
    const std::string found = RunRanks(1, [&](int, Meeting&) { return LoseGpu(faults); })[0];
    EXPECT_THAT(found, HasSubstr(name));
  }
}

}  // namespace
}  // namespace crossmesh
