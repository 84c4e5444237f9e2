// A GPU that this process can do nothing more with: in a process of its own, which ends with it.

#include "worker/gpu/device/gpu_event.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/testing/stand_in_process.h"
#include "worker/gpu/kernels/kernel_arguments.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Polls until the event is done, or the GPU has failed.
absl::Status Await(GpuEvent& event) {
  while (true) {
    ASSIGN_OR_RETURN(const bool is_done, event.IsDone());
    if (is_done) return absl::OkStatus();
    std::this_thread::yield();
  }
}

absl::Status LoseGpu() {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  Gpu& gpu = *process.gpu;
  ASSIGN_OR_RETURN(auto stream, GpuStream::Create(gpu));
  ASSIGN_OR_RETURN(auto event, GpuEvent::Create(gpu));
  RETURN_IF_ERROR(process.stand_in->SetFaults("illegal_address_at=1"));
  const auto pack = gpu.KernelNamed<PackArguments>("crossmesh_pack");
  RETURN_IF_ERROR(gpu.Launch(pack, 1, {}, *stream));
  // The launch itself went well. Whether this record sees the error is a matter of time.
  RETURN_IF_ERROR(Expect(gpu.health().ok(), "a GPU in health"));
  absl::Status lost = event->Record(*stream);
  if (lost.ok()) lost = Await(*event);
  RETURN_IF_ERROR(Expect(gpu.health() == lost, "the error to be kept"));
  RETURN_IF_ERROR(Expect(gpu.Memory().status() == lost, "every call to give it"));
  RETURN_IF_ERROR(Expect(gpu.Launch(pack, 1, {}, *stream) == lost, "no more launches"));
  event.reset();
  stream.reset();
  RETURN_IF_ERROR(process.End());
  return lost;
}

TEST(GpuHealthTest, AKernelThatTouchesMemoryWhichIsNotThereTakesTheGpuFromTheProcess) {
  const std::string found = RunRanks(1, [](int, Meeting&) { return LoseGpu(); })[0];
  EXPECT_THAT(found, AllOf(HasSubstr("GPU-7374616e-6469-6e00-0000-000000000000"),
                           HasSubstr("CUDA_ERROR_ILLEGAL_ADDRESS (700)")));
}

}  // namespace
}  // namespace crossmesh
