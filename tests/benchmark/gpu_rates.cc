#include "tests/benchmark/gpu_rates.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "tests/benchmark/measure.h"
#include "worker/gpu/device/registered_memory.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <span>

#include <absl/memory/memory.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr int kInARow = 4;
constexpr int64_t kRandomBytes = int64_t{64} << 20;

}  // namespace

RateTable::RateTable() : table_({"WHAT", "GB/S>", "COPY GB/S>", "OF COPY>", "WANTED>", "MET>"}) {}

void RateTable::Add(const MeasuredWork& work, double seconds, double copy_seconds) {
  const auto gigabytes_per_second = [&](double time) {
    return absl::StrFormat("%.0f", static_cast<double>(work.moved_bytes) / time / 1e9);
  };
  const double ratio = copy_seconds / seconds;
  table_.AddRow({work.name, gigabytes_per_second(seconds), gigabytes_per_second(copy_seconds),
                 absl::StrFormat("%.1f %%", 100 * ratio),
                 work.wanted > 0 ? absl::StrFormat("%.0f %%", 100 * work.wanted) : "-",
                 work.wanted == 0       ? "-"
                 : ratio >= work.wanted ? "yes"
                                        : "no"});
}

absl::StatusOr<std::unique_ptr<TimedStream>> TimedStream::Create(Gpu& gpu) {
  auto timed = absl::WrapUnique(new TimedStream(gpu));
  ASSIGN_OR_RETURN(timed->stream_, GpuStream::Create(gpu));
  for (CUevent& event : timed->events_) {
    RETURN_IF_ERROR(
        gpu.Check(gpu.driver().cuEventCreate(&event, CU_EVENT_DEFAULT), "cuEventCreate"));
  }
  return timed;
}

TimedStream::~TimedStream() {
  for (CUevent event : events_) {
    if (event != nullptr) gpu_.LogFailure(gpu_.driver().cuEventDestroy(event), "cuEventDestroy");
  }
}

absl::StatusOr<double> TimedStream::SecondsOf(absl::FunctionRef<absl::Status()> queue) {
  const DriverApi& driver = gpu_.driver();
  const auto record = [&](CUevent event) {
    return gpu_.Check(driver.cuEventRecord(event, stream_->handle()), "cuEventRecord");
  };
  RETURN_IF_ERROR(record(events_[0]));
  for (int i = 0; i < kInARow; ++i) RETURN_IF_ERROR(queue());
  RETURN_IF_ERROR(record(events_[1]));
  RETURN_IF_ERROR(gpu_.Check(driver.cuEventSynchronize(events_[1]), "cuEventSynchronize"));
  float milliseconds = 0;
  RETURN_IF_ERROR(gpu_.Check(driver.cuEventElapsedTime(&milliseconds, events_[0], events_[1]),
                             "cuEventElapsedTime"));
  return milliseconds / 1e3 / kInARow;
}

absl::StatusOr<std::unique_ptr<MeasuredTiles>> MeasuredTiles::Create(Gpu& gpu, int64_t bytes) {
  auto tiles = absl::WrapUnique(new MeasuredTiles(gpu));
  ASSIGN_OR_RETURN(tiles->timed_, TimedStream::Create(gpu));
  ASSIGN_OR_RETURN(tiles->memory_, GpuMemory::Create(gpu, ByteCount(bytes), {}));
  RETURN_IF_ERROR(tiles->FillWithRandomBytes());
  return tiles;
}

// What is all the same takes less power to move, and so moves faster.
absl::Status MeasuredTiles::FillWithRandomBytes() {
  const int64_t bytes = memory_->bytes().value();
  ASSIGN_OR_RETURN(const auto staging,
                   RegisteredMemory::Create(gpu_, ByteCount(std::min(bytes, kRandomBytes))));
  const std::span<std::byte> some = staging->bytes();
  std::mt19937_64 random(1);
  for (size_t at = 0; at + sizeof(uint64_t) <= some.size(); at += sizeof(uint64_t)) {
    const uint64_t word = random();
    std::memcpy(&some[at], &word, sizeof(word));
  }
  for (int64_t at = 0; at < bytes; at += std::ssize(some)) {
    const auto here = some.first(std::min<int64_t>(std::ssize(some), bytes - at));
    RETURN_IF_ERROR(staging->CopyToGpu(here, memory_->address() + at, timed_->stream()));
  }
  return gpu_.SynchronizeForShutdown();
}

absl::StatusOr<double> MeasuredTiles::CopySeconds(int64_t bytes) {
  CHECK_LE(bytes, memory_->bytes().value() / 2);
  return timed_->SecondsOf([&] {
    return gpu_.Check(gpu_.driver().cuMemcpyDtoDAsync(second_half(), first_half(), bytes,
                                                      timed_->stream().handle()),
                      "cuMemcpyDtoDAsync");
  });
}

absl::Status MeasuredTiles::Measure(const std::vector<MeasuredWork>& works, int rounds,
                                    RateTable& table) {
  std::vector<std::vector<double>> seconds(works.size());
  std::vector<std::vector<double>> copy_seconds(works.size());
  for (int round = 0; round <= rounds; ++round) {
    for (size_t i = 0; i < works.size(); ++i) {
      ASSIGN_OR_RETURN(const double one, works[i].seconds());
      ASSIGN_OR_RETURN(const double copy, CopySeconds(works[i].moved_bytes / 2));
      if (round == 0) continue;
      seconds[i].push_back(one);
      copy_seconds[i].push_back(copy);
    }
  }
  for (size_t i = 0; i < works.size(); ++i) {
    table.Add(works[i], MedianOf(seconds[i]), MedianOf(copy_seconds[i]));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
