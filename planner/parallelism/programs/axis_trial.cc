#include "planner/parallelism/programs/axis_trial.h"

#include "common/base/format.h"
#include "common/base/status_macros.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/mesh/shape.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kLine = 64;  // bytes that every device has at least
constexpr int64_t kBytesMin = 4096;
constexpr int64_t kSizesRatio = 16;
constexpr double kOpSeconds = 1e-3;
// At which a rehearsal surely writes what it gives: ops that take as long end together.
constexpr double kFillRate = 250e6;

int64_t RoundUp(int64_t bytes, int64_t unit) { return (bytes + unit - 1) / unit * unit; }

LayerProgram::Transfer Gather(std::string name, std::vector<int64_t> lengths,
                              const AxisLayout& source) {
  AxisLayout destination = source;
  destination.dimensions.back().clear();
  return {.name = std::move(name),
          .tensors = {{.tensor = {.name = "bytes",
                                  .type = DataType::kU8,
                                  .shape = *Shape::Create(std::move(lengths))},
                       .source = Layout(source),
                       .destination = Layout(std::move(destination))}}};
}

class TrialWriter {
 public:
  explicit TrialWriter(AxisTrial& trial, const Mesh& mesh) : trial_(trial), mesh_(mesh) {}

  void Write() {
    trial_.program.name = absl::StrCat("axis-", trial_.position.inner, "-", trial_.position.own);
    trial_.program.ranks = {{.mesh = std::make_shared<const Mesh>(mesh_)}};
    LayerProgram::Transfer meet =
        Gather("meet", {mesh_.slots() * kLine}, {.dimensions = {{"outer", "own", "inner"}}});
    WriteGathers(kSmallGather, trial_.small_bytes, meet);
    WriteGathers(kLargeGather, trial_.large_bytes, meet);
    AddOp("end", 0);
    trial_.program.transfers.push_back(std::move(meet));
  }

 private:
  void WriteGathers(const std::string& name, int64_t bytes, LayerProgram::Transfer& meet) {
    LayerProgram::Transfer gather =
        Gather(name, {mesh_.axes()[0].size, mesh_.axes()[2].size, bytes},
               {.dimensions = {{"outer"}, {"inner"}, {"own"}}});
    const double seconds =
        kOpSeconds + static_cast<double>(bytes / trial_.position.own) / kFillRate;
    for (int i = 0; i < AxisTrial::kMessages; ++i) {
      const int32_t begin = AddOp(absl::StrCat(name, i, ".meet"), 0);
      AddOp(absl::StrCat(name, i), seconds);
      meet.messages.push_back({begin, begin + 1});
      gather.messages.push_back({begin + 1, begin + 2});
    }
    trial_.program.transfers.push_back(std::move(gather));
  }

  int32_t AddOp(std::string name, double seconds) {
    trial_.program.ops.push_back({.name = std::move(name), .seconds = seconds});
    return static_cast<int32_t>(trial_.program.ops.size()) - 1;
  }

  AxisTrial& trial_;
  const Mesh& mesh_;
};

std::string NameOf(const AxisPosition& position) {
  return absl::StrCat("position inner ", position.inner, ", own ", position.own);
}

}  // namespace

absl::StatusOr<AxisTrial> MakeAxisTrial(std::span<const DeviceId> devices, AxisPosition position,
                                        int64_t large_bytes) {
  const int64_t count = std::ssize(devices);
  if (count < 2) {
    return absl::InvalidArgumentError(
        absl::StrCat("devices: expected at least two, found ", count));
  }
  const auto [inner, own] = position;
  if (!std::ranges::binary_search(PositionRates::PositionsOf(count), position)) {
    return absl::InvalidArgumentError(absl::StrCat(NameOf(position),
                                                   ": expected sizes whose product divides the ",
                                                   count, " devices, the second at least 2"));
  }
  if (large_bytes < kBytesMin || large_bytes > AxisTrial::kBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("bytes of a gather: expected from ", kBytesMin,
                                                   " to ", AxisTrial::kBytesMax, ", found ",
                                                   large_bytes));
  }
  ASSIGN_OR_RETURN(const Mesh mesh,
                   Mesh::Create({{"outer", count / (inner * own)}, {"own", own}, {"inner", inner}},
                                {devices.begin(), devices.end()}));
  const int64_t unit = own * kLine;
  AxisTrial trial{.position = position};
  trial.small_bytes = RoundUp(large_bytes / kSizesRatio, unit);
  // Larger in any case.
  trial.large_bytes = std::max(RoundUp(large_bytes, unit), trial.small_bytes + unit);
  TrialWriter(trial, mesh).Write();
  return trial;
}

absl::StatusOr<MeasuredPosition> FitPosition(const AxisTrial& trial, double small_seconds,
                                             double large_seconds) {
  const double more = large_seconds - small_seconds;
  if (!(more > 0) || small_seconds < 0) {
    return absl::OutOfRangeError(
        absl::StrCat(NameOf(trial.position), ": expected ", trial.large_bytes,
                     " bytes to take longer than ", trial.small_bytes, ", found ",
                     FormatSeconds(large_seconds), " and ", FormatSeconds(small_seconds)));
  }
  const double per_byte = more / static_cast<double>(trial.large_bytes - trial.small_bytes);
  const auto own = static_cast<double>(trial.position.own);
  const double latency =
      std::max(0.0, small_seconds - per_byte * static_cast<double>(trial.small_bytes));
  return MeasuredPosition{.position = trial.position,
                          .seconds_per_message = latency / (own - 1),
                          .bytes_per_second = (own - 1) / own / per_byte};
}

}  // namespace crossmesh
