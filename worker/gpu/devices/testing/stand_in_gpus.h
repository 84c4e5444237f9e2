#pragma once

#include "common/base/check.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/communicators/communicator_key.h"
#include "common/event_loop/event_loop.h"
#include "common/metrics/worker_metrics.h"
#include "common/testing/paths.h"
#include "common/testing/temporary_folder.h"
#include "tests/standin/stand_in.h"
#include "worker/gpu/devices/gpu_devices.h"
#include "worker/gpu/protocol/testing/gpu_requests_of_tests.h"
#include "worker/gpu/protocol/testing/run_until.h"

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <future>
#include <memory>
#include <optional>
#include <source_location>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>
#include <absl/time/time.h>
#include <unistd.h>

namespace crossmesh {

// GPUs of the stand-in as devices of a worker, in processes, on a loop that a test runs itself; and
// what a controller would do about communicators. Confined to the test's thread.
class StandInGpus {
 public:
  // The GPU of each device, in order, is that with its number: "a.0=GPU-...00..." first.
  explicit StandInGpus(const std::vector<std::string>& devices);
  ~StandInGpus();
  StandInGpus(const StandInGpus&) = delete;
  StandInGpus& operator=(const StandInGpus&) = delete;

  // Changed before Open.
  GpuDevices::Options options;

  // What GpuDevices::Open says.
  absl::Status Open();
  // As a worker's end does. Repeatable.
  void Stop();

  EventLoop& loop() { return *loop_; }
  GpuDevices& devices() { return *devices_; }
  GpuDevice& operator[](const std::string& device) const;

  // With Patience.
  void RunUntil(absl::FunctionRef<bool()> holds,
                std::source_location where = std::source_location::current());
  absl::StatusOr<GpuProcess::Reply> Call(GpuDevice& gpu, v1::GpuRequest request);
  // Until another process has taken the place of the one of `gpu`, which is lost.
  void AwaitReplacement(const GpuDevice& gpu);

  // A communicator of all GPUs, by device, or of these; again after one was lost.
  absl::StatusOr<CommunicatorKey> MakeCommunicator(const std::vector<DeviceId>& only = {});

  // Memory for a storage, once it is made.
  absl::StatusOr<std::shared_ptr<Arena>> MakeArena(const std::string& device, int64_t bytes);
  // Of an arena's memory, which user processes would have. Waits for a loop that another
  // thread runs to make it.
  static void Write(const Arena& arena, const std::string& bytes);
  static std::string Read(const Arena& arena);

  // What was done wrong in the processes.
  std::string Violations() const;

 private:
  static int DescriptorOf(const Arena& arena);

  const RealClock clock_;
  const TemporaryFolder folder_;
  WorkerMetrics metrics_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<GpuDevices> devices_;
  uint64_t tickets_ = 0;
};

inline StandInGpus::StandInGpus(const std::vector<std::string>& devices) {
  auto loop = EventLoop::Create(clock_, {});
  CHECK_OK(loop);
  loop_ = *std::move(loop);
  for (const std::string& device : devices) {
    const int number = static_cast<int>(options.gpus.size());
    options.gpus.push_back({.device = *ParseDevice(device), .gpu = StandInUuid(number)});
  }
  options.process = {
      .program = ProgramPath("crossmesh-gpu"),
      .driver_library = StandInDriverPath(),
      .nccl_library = StandInNcclPath(),
      .environment = {absl::StrCat("CROSSMESH_STANDIN_DEVICES=", devices.size()),
                      absl::StrCat("CROSSMESH_STANDIN_KERNELS=", StandInKernelsPath()),
                      absl::StrCat("CROSSMESH_STANDIN_REPORT=", folder_.PathOf("violations"))},
      .staging_bytes = ByteCount(8 << 20),
      .backoff = {.initial = absl::Milliseconds(1), .max = absl::Milliseconds(100)}};
}

inline StandInGpus::~StandInGpus() { Stop(); }

inline absl::Status StandInGpus::Open() {
  ASSIGN_OR_RETURN(devices_, GpuDevices::Create(*loop_, clock_, options, metrics_));
  std::optional<absl::Status> opened;
  devices_->Open([&](absl::Status status) { opened = std::move(status); });
  RunUntil([&] { return opened.has_value(); });
  return *opened;
}

inline void StandInGpus::Stop() {
  if (devices_ != nullptr) devices_->Stop();
}

inline GpuDevice& StandInGpus::operator[](const std::string& device) const {
  return *devices_->Find(*ParseDevice(device));
}

inline void StandInGpus::RunUntil(absl::FunctionRef<bool()> holds, std::source_location where) {
  crossmesh::RunUntil(*loop_, holds, where);
}

inline absl::StatusOr<GpuProcess::Reply> StandInGpus::Call(GpuDevice& gpu, v1::GpuRequest request) {
  std::optional<absl::StatusOr<GpuProcess::Reply>> reply;
  gpu.process().Call(std::move(request), [&](absl::StatusOr<GpuProcess::Reply> answer) {
    reply.emplace(std::move(answer));
  });
  RunUntil([&] { return reply.has_value(); });
  return *std::move(reply);
}

inline void StandInGpus::AwaitReplacement(const GpuDevice& gpu) {
  RunUntil([&] { return gpu.state() != GpuDevice::State::kUp; });
  RunUntil([&] { return gpu.state() == GpuDevice::State::kUp; });
}

inline absl::StatusOr<CommunicatorKey> StandInGpus::MakeCommunicator(
    const std::vector<DeviceId>& only) {
  CommunicatorKey key = {.ranks = {}, .purpose = "relay", .epoch = 1};
  std::vector<GpuDevice*> ranks;
  for (const GpuName& name : options.gpus) {
    if (!only.empty() && std::ranges::find(only, name.device) == only.end()) continue;
    ranks.push_back(devices_->Find(name.device));
    key.ranks.push_back(ranks.back()->rank());
  }
  ASSIGN_OR_RETURN(const GpuProcess::Reply minted, Call(*ranks[0], MintCommunicatorIdRequest()));
  const v1::GpuRequest create =
      CreateCommunicatorRequest({.key = key, .ticket = ++tickets_}, minted.answer.minted().id());
  size_t answers = 0;
  absl::Status made;
  for (GpuDevice* const rank : ranks) {
    rank->process().Call(create, [&](const absl::StatusOr<GpuProcess::Reply>& reply) {
      made.Update(reply.status());
      ++answers;
    });
  }
  RunUntil([&] { return answers == ranks.size(); });
  RETURN_IF_ERROR(made);
  return key;
}

inline absl::StatusOr<std::shared_ptr<Arena>> StandInGpus::MakeArena(const std::string& device,
                                                                     int64_t bytes) {
  ASSIGN_OR_RETURN(
      std::shared_ptr<Arena> arena,
      devices_->MakeArena({.name = "test", .device = *ParseDevice(device)}, ByteCount(bytes)));
  RunUntil([&] { return arena->device_memory()->is_made().value_or(true); });
  RETURN_IF_ERROR(arena->status());
  return arena;
}

inline int StandInGpus::DescriptorOf(const Arena& arena) {
  std::promise<int> descriptor;
  arena.device_memory()->WhenMade([&](const DeviceMemory::Made& made) {
    CHECK_OK(made);
    descriptor.set_value(made->get());
  });
  return descriptor.get_future().get();
}

inline void StandInGpus::Write(const Arena& arena, const std::string& bytes) {
  CHECK_EQ(pwrite(DescriptorOf(arena), bytes.data(), bytes.size(), 0), std::ssize(bytes));
}

inline std::string StandInGpus::Read(const Arena& arena) {
  std::string bytes(arena.bytes().size(), '\0');
  CHECK_EQ(pread(DescriptorOf(arena), bytes.data(), bytes.size(), 0), std::ssize(bytes));
  return bytes;
}

inline std::string StandInGpus::Violations() const {
  std::stringstream report;
  report << std::ifstream(folder_.PathOf("violations")).rdbuf();
  return report.str();
}

}  // namespace crossmesh
