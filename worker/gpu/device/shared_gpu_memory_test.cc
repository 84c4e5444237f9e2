// Memory that processes share by descriptor.

#include "common/base/process_end.h"
#include "common/base/unique_fd.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/testing/stand_in_process.h"

#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr ByteCount kBytes(1000);
constexpr absl::string_view kText = "of the first";

char* TextIn(const GpuMemory& memory) { return reinterpret_cast<char*>(memory.address()); }

// Writes, exports and is killed.
absl::Status RunExporter(Meeting& meeting) {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  ASSIGN_OR_RETURN(const auto memory, GpuMemory::Create(*process.gpu, kBytes, {}));
  ASSIGN_OR_RETURN(const UniqueFd fd, memory->ExportFd());
  std::memcpy(TextIn(*memory), kText.data(), kText.size());
  meeting.process = getpid();
  meeting.fd = fd.get();
  meeting.Wait();
  meeting.Wait();  // the other has the descriptor
  kill(getpid(), SIGKILL);
  return absl::OkStatus();
}

absl::Status RunImporter(Meeting& meeting) {
  ASSIGN_OR_RETURN(StandInProcess process, StandInProcess::Create());
  meeting.Wait();
  // In place of a message with the descriptor.
  const UniqueFd fd(
      open(absl::StrCat("/proc/", meeting.process, "/fd/", meeting.fd).c_str(), O_RDWR));
  RETURN_IF_ERROR(Expect(fd.valid(), "the exporter's descriptor"));
  // While it is sure to be there.
  ASSIGN_OR_RETURN(const UniqueFd exporter, OpenProcess(meeting.process));
  meeting.Wait();
  RETURN_IF_ERROR(Expect(AwaitEnd(exporter, absl::InfiniteDuration()), "the exporter to end"));
  ASSIGN_OR_RETURN(auto memory, GpuMemory::Import(*process.gpu, fd.get(), kBytes));
  RETURN_IF_ERROR(Expect(absl::string_view(TextIn(*memory), kText.size()) == kText,
                         "the bytes that the exporter wrote"));
  memory.reset();
  return process.End();
}

TEST(SharedGpuMemoryTest, OutlivesTheProcessThatMadeIt) {
  const auto results = RunRanks(2, [](int rank, Meeting& meeting) {
    return rank == 0 ? RunExporter(meeting) : RunImporter(meeting);
  });
  EXPECT_THAT(results, ElementsAre("killed by signal 9", IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
