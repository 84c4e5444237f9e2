// Memory of a GPU that two processes share by its descriptor.

#include "common/base/process_end.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"
#include "common/testing/status_matchers.h"
#include "tests/gpu/real_gpu.h"
#include "tests/standin/rank_processes.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"
#include "worker/gpu/device/registered_memory.h"
#include "worker/gpu/protocol/message_socket.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace crossmesh {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// CUDA hands on whole blocks of this size.
constexpr ByteCount kBytes(int64_t{2} << 20);

// One process's GPU, and a way to its memory.
class Process {
 public:
  static absl::StatusOr<Process> Create() {
    Process made;
    ASSIGN_OR_RETURN(made.driver_, LoadDriver());
    ASSIGN_OR_RETURN(const std::vector<std::string> uuids, Gpu::Uuids(*made.driver_));
    ASSIGN_OR_RETURN(made.gpu_, Gpu::Create(*made.driver_, uuids.at(0)));
    ASSIGN_OR_RETURN(made.stream_, GpuStream::Create(*made.gpu_));
    ASSIGN_OR_RETURN(made.bytes_, RegisteredMemory::Create(*made.gpu_, kBytes));
    return made;
  }

  Gpu& gpu() const { return *gpu_; }

  absl::Status Fill(uint64_t address, int value) const {
    std::ranges::fill(bytes_->bytes(), static_cast<std::byte>(value));
    RETURN_IF_ERROR(bytes_->CopyToGpu(bytes_->bytes(), address, *stream_));
    return Finish();
  }
  absl::Status ExpectFilled(uint64_t address, int value) const {
    RETURN_IF_ERROR(bytes_->CopyFromGpu(address, bytes_->bytes(), *stream_));
    RETURN_IF_ERROR(Finish());
    const auto right = std::ranges::count(bytes_->bytes(), static_cast<std::byte>(value));
    if (right == kBytes.value()) return absl::OkStatus();
    return absl::DataLossError(
        absl::StrCat("expected ", kBytes.value(), " bytes of ", value, ", found ", right));
  }

 private:
  absl::Status Finish() const {
    return gpu_->Check(driver_->cuStreamSynchronize(stream_->handle()), "cuStreamSynchronize");
  }

  std::unique_ptr<const DriverApi> driver_;
  std::unique_ptr<Gpu> gpu_;
  std::unique_ptr<GpuStream> stream_;
  std::unique_ptr<RegisteredMemory> bytes_;
};

absl::StatusOr<UniqueFd> ReceiveDescriptor(UniqueFd socket_end) {
  std::optional<absl::StatusOr<UniqueFd>> result;
  MessageSocket::Handlers handlers = {
      .on_message = [&](std::string, UniqueFd descriptor) { result = std::move(descriptor); },
      .on_closed =
          [&](const absl::Status& why) {
            if (!result.has_value()) result = why;
          }};
  ASSIGN_OR_RETURN(const auto socket,
                   MessageSocket::Create(std::move(socket_end), std::move(handlers)));
  while (!result.has_value()) {
    socket->Progress();
    std::this_thread::yield();
  }
  return *std::move(result);
}

absl::Status SendDescriptor(UniqueFd socket_end, UniqueFd descriptor) {
  MessageSocket::Handlers nothing_comes = {.on_message = [](std::string, UniqueFd) {},
                                           .on_closed = [](const absl::Status&) {}};
  ASSIGN_OR_RETURN(const auto socket,
                   MessageSocket::Create(std::move(socket_end), std::move(nothing_comes)));
  return socket->Send("memory", std::move(descriptor));
}

absl::Status Export(UniqueFd socket_end, Meeting& meeting) {
  ASSIGN_OR_RETURN(const Process process, Process::Create());
  ASSIGN_OR_RETURN(const auto memory, GpuMemory::Create(process.gpu(), kBytes, {}));
  RETURN_IF_ERROR(process.Fill(memory->address(), 1));
  ASSIGN_OR_RETURN(UniqueFd descriptor, memory->ExportFd());
  RETURN_IF_ERROR(SendDescriptor(std::move(socket_end), std::move(descriptor)));
  meeting.process = getpid();
  meeting.Wait();
  meeting.Wait();  // the other has written
  RETURN_IF_ERROR(process.ExpectFilled(memory->address(), 2));
  kill(getpid(), SIGKILL);
  return absl::OkStatus();
}

absl::Status Import(UniqueFd socket_end, Meeting& meeting) {
  ASSIGN_OR_RETURN(const Process process, Process::Create());
  ASSIGN_OR_RETURN(const UniqueFd descriptor, ReceiveDescriptor(std::move(socket_end)));
  meeting.Wait();
  ASSIGN_OR_RETURN(auto memory, GpuMemory::Import(process.gpu(), descriptor.get(), kBytes));
  RETURN_IF_ERROR(process.ExpectFilled(memory->address(), 1));
  RETURN_IF_ERROR(process.Fill(memory->address(), 2));
  memory.reset();
  // While it cannot have ended.
  ASSIGN_OR_RETURN(const UniqueFd exporter, OpenProcess(meeting.process));
  meeting.Wait();
  if (!AwaitEnd(exporter, absl::Minutes(1))) return absl::InternalError("the exporter goes on");
  ASSIGN_OR_RETURN(memory, GpuMemory::Import(process.gpu(), descriptor.get(), kBytes));
  return process.ExpectFilled(memory->address(), 2);
}

TEST(SharedMemoryOnGpuTest, ADescriptorIsTheSameMemoryAndOutlivesTheProcessThatMadeIt) {
  if (const std::string lack = WhatLacks({}); !lack.empty()) GTEST_SKIP() << lack;
  ASSERT_OK_AND_ASSIGN(auto ends, MessageSocket::MakePair());
  const auto results = RunRanks(2, [&](int number, Meeting& meeting) {
    return number == 0 ? Export(std::move(ends.first), meeting)
                       : Import(std::move(ends.second), meeting);
  });
  EXPECT_THAT(results, ElementsAre("killed by signal 9", IsEmpty()));
}

}  // namespace
}  // namespace crossmesh
