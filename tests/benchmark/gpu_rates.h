#pragma once

#include "common/base/table.h"
#include "worker/gpu/device/gpu.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/device/gpu_stream.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <cuda.h>

namespace crossmesh {

// What is measured beside a copy that reads and writes as many bytes.
struct MeasuredWork {
  std::string name;
  double wanted = 0;        // of the copy's rate; 0: nothing is
  int64_t moved_bytes = 0;  // read plus written
  std::function<absl::StatusOr<double>()> seconds;
};

// Rates, a row for each work.
class RateTable {
 public:
  RateTable();

  void Add(const MeasuredWork& work, double seconds, double copy_seconds);
  std::string ToString() const { return table_.ToString(); }

 private:
  TextTable table_;
};

// A stream whose work the GPU times.
class TimedStream {
 public:
  static absl::StatusOr<std::unique_ptr<TimedStream>> Create(Gpu& gpu);
  ~TimedStream();
  TimedStream(const TimedStream&) = delete;
  TimedStream& operator=(const TimedStream&) = delete;

  const GpuStream& stream() const { return *stream_; }

  // Of what `queue` puts on the stream. It is called several times in a row, so that what a launch
  // costs hides behind the work before it, as it does in a compiled part.
  absl::StatusOr<double> SecondsOf(absl::FunctionRef<absl::Status()> queue);

 private:
  explicit TimedStream(Gpu& gpu) : gpu_(gpu) {}

  Gpu& gpu_;
  std::unique_ptr<GpuStream> stream_;
  CUevent events_[2] = {};
};

// Memory of random bytes for tiles, and the copies beside which everything is measured: from its
// first half to its second.
class MeasuredTiles {
 public:
  // `gpu` must outlive them.
  static absl::StatusOr<std::unique_ptr<MeasuredTiles>> Create(Gpu& gpu, int64_t bytes);

  TimedStream& timed() const { return *timed_; }
  uint64_t first_half() const { return memory_->address(); }
  uint64_t second_half() const { return memory_->address() + memory_->bytes().value() / 2; }

  // Medians over rounds of each work and its copy, one after the other; a first round is not
  // counted. No work moves more than the copy of a half.
  absl::Status Measure(const std::vector<MeasuredWork>& works, int rounds, RateTable& table);

 private:
  explicit MeasuredTiles(Gpu& gpu) : gpu_(gpu) {}

  absl::Status FillWithRandomBytes();
  absl::StatusOr<double> CopySeconds(int64_t bytes);

  Gpu& gpu_;
  std::unique_ptr<TimedStream> timed_;
  std::unique_ptr<GpuMemory> memory_;
};

}  // namespace crossmesh
