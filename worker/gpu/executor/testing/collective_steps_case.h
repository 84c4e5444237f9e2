// Redistributions whose steps are collectives of NCCL, and what holds of their results.

#pragma once

#include "common/base/status_macros.h"
#include "common/mesh/data_type.h"
#include "common/plan/communicator_splits.h"
#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "common/plan/packed_segments.h"
#include "common/plan/testing/random_source.h"
#include "common/plan/worker_part.h"
#include "planner/redistribute/planning/testing/course_requests.h"
#include "worker/executor/prepared_part.h"
#include "worker/executor/testing/mesh_runner.h"
#include "worker/executor/testing/tile_memory.h"
#include "worker/gpu/executor/gpu_legs.h"
#include "worker/gpu/executor/testing/element_numbers.h"
#include "worker/gpu/executor/testing/executor_rank.h"
#include "worker/gpu/executor/testing/tiles_on_gpu.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <gtest/gtest.h>

namespace crossmesh {

inline constexpr int kCollectors = 8;

struct CollectiveStepsCase {
  // Of all devices, or else of groups that are parts of them.
  enum class Of : uint8_t { kAll, kGroups };

  CollectiveStepsCase(uint64_t seed, bool is_sum, bool with_checksums = true, Of of = Of::kAll)
      : CollectiveStepsCase(of == Of::kAll ? RandomCollectiveRequest(seed, is_sum)
                                           : RandomGroupedRequest(seed, is_sum),
                            is_sum, with_checksums) {}
  CollectiveStepsCase(CourseRequest of, bool is_sum, bool with_checksums)
      : request(std::move(of)),
        plan(PlanOf(request).value()),
        sums(is_sum),
        checksums(with_checksums) {}

  // At a device of the plan.
  int64_t CallsOf(StepCollective kind, DeviceRank device) const {
    int64_t calls = 0;
    ForEachCall(kind, device, [&](const Course<Plan>& course) {
      calls += int64_t{course.instances} * course.tensors_of_instance();
    });
    return calls;
  }
  // Likewise of the lists of hashes.
  int64_t HashCalls(DeviceRank device) const {
    int64_t calls = 0;
    ForEachCall(StepCollective::kAllGather, device,
                [&](const Course<Plan>& course) { calls += checksums ? course.instances : 0; });
    return calls;
  }
  std::vector<CommunicatorSplit> Splits() const {
    return SplitsOf(plan.tensors(),
                    std::vector<CourseTables>(plan.courses().begin(), plan.courses().end()));
  }
  // Devices with summands of what the device gets, in the order of their pieces.
  std::vector<DeviceRank> SummandsAt(DeviceRank device) const {
    const TensorTable& tensors = plan.tensors();
    std::vector<DeviceRank> summands;
    for (DeviceRank other = 0; other < kCollectors; ++other) {
      if (tensors.TileOf(Side::kSource, 0, other) == tensors.TileOf(Side::kSource, 0, device)) {
        summands.push_back(other);
      }
    }
    return summands;
  }

  CourseRequest request;
  Plan plan;
  bool sums;
  bool checksums;

 private:
  // Each step of a course in whose groups the device is.
  void ForEachCall(StepCollective kind, DeviceRank device,
                   absl::FunctionRef<void(const Course<Plan>&)> visit) const {
    const DeviceId& name = plan.tensors().devices()[device];
    for (const Course<Plan>& course : plan.courses()) {
      for (const auto& step : course.steps) {
        const auto rank = step.move->tensors().FindDevice(name);
        if (step.collective == kind && rank.has_value()) visit(course);
      }
    }
  }
};

inline int64_t ElementsOf(const TensorTable& tensors, Side side, int32_t tensor,
                          DeviceRank device) {
  return tensors.TileOf(side, tensors.group_of_tensor()[tensor], device)[0].volume();
}

// From -1 to 1, or small whole numbers. All ranks fill in the same.
inline void FillNumbers(const Plan& plan, const TileMemory& memory, uint64_t seed) {
  const TensorTable& tensors = plan.tensors();
  RandomSource random(seed);
  for (DeviceRank device = 0; device < std::ssize(tensors.devices()); ++device) {
    for (int32_t tensor = 0; tensor < std::ssize(tensors.group_of_tensor()); ++tensor) {
      const DataType type = tensors.groups()[tensors.group_of_tensor()[tensor]].type;
      std::byte* const tile = memory.tiles(Side::kSource, device).tensor[tensor];
      WithFormat(type, [&](auto /*read*/, auto write) {
        for (int64_t i = 0; i < ElementsOf(tensors, Side::kSource, tensor, device); ++i) {
          const auto number = static_cast<double>(random.Between(-1'000'000, 1'000'000));
          const double whole = type == DataType::kU8 ? random.Below(32) : number;
          write(RoundingOf(type) == 0 ? whole : number / 1e6, tile + i * ItemBytes(type));
        }
      });
    }
  }
}

// DataLoss where an element of the device's sums is farther from the exact one than n roundings of
// the sum of all magnitudes: each of at most n - 1 additions rounds a part of these, and the result
// is rounded once more.
inline absl::Status CheckWithinRounding(const CollectiveStepsCase& of, const TileMemory& memory,
                                        DeviceRank device) {
  const TensorTable& tensors = of.plan.tensors();
  const std::vector<DeviceRank> summands = of.SummandsAt(device);
  const auto count = static_cast<double>(summands.size());
  const int64_t piece = std::ranges::find(summands, device) - summands.begin();
  const bool is_mean = of.request.request.redistribution.reduction == "mean";
  for (int32_t tensor = 0; tensor < std::ssize(tensors.group_of_tensor()); ++tensor) {
    const DataType type = tensors.groups()[tensors.group_of_tensor()[tensor]].type;
    const int64_t item = ItemBytes(type);
    const int64_t elements = ElementsOf(tensors, Side::kDestination, tensor, device);
    const bool is_all = elements == ElementsOf(tensors, Side::kSource, tensor, device);
    const int64_t first = is_all ? 0 : piece * elements;
    absl::Status status;
    WithFormat(type, [&](auto read, auto /*write*/) {
      for (int64_t i = 0; i < elements && status.ok(); ++i) {
        double exact = 0;
        double magnitude = 0;
        for (const DeviceRank summand : summands) {
          const double value =
              read(memory.tiles(Side::kSource, summand).tensor[tensor] + (first + i) * item);
          exact += value;
          magnitude += std::abs(value);
        }
        const double scale = is_mean ? count : 1;
        const double expected = RoundingOf(type) == 0 ? std::trunc(exact / scale) : exact / scale;
        const double found =
            read(memory.tiles(Side::kDestination, device).tensor[tensor] + i * item);
        if (std::abs(found - expected) <= count * RoundingOf(type) * magnitude / scale) {
          continue;
        }
        status =
            absl::DataLossError(absl::StrCat(DataTypeName(type), " tensor ", tensor, ", element ",
                                             i, ": expected ", expected, ", found ", found));
      }
    });
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

// Destinations and report are those of host memory.
inline absl::Status CheckAsOnHosts(const CollectiveStepsCase& of, MeshRunner& hosts,
                                   const TileMemory& memory, const DeviceReport& report) {
  TileMemory expected(of.plan);
  ASSIGN_OR_RETURN(const MeshOutcome outcome,
                   hosts.Run(of.plan, std::vector<int32_t>(kCollectors, 0), expected,
                             {.checksums = of.checksums}));
  const DeviceReport& of_host = outcome.devices.at(report.device);
  const TensorTable& tensors = of.plan.tensors();
  const TileMap map(tensors, of.plan.slicing(), Side::kDestination, report.device);
  for (size_t tensor = 0; tensor < tensors.group_of_tensor().size(); ++tensor) {
    const auto* const found = memory.tiles(Side::kDestination, report.device).tensor[tensor];
    const auto* const wanted = expected.tiles(Side::kDestination, report.device).tensor[tensor];
    const int64_t bytes = map.tile_bytes(tensors.group_of_tensor()[tensor]);
    if (bytes == 0 || std::memcmp(found, wanted, bytes) == 0) continue;
    return absl::DataLossError(absl::StrCat("tensor ", tensor, ": ", bytes, " bytes differ"));
  }
  RETURN_IF_ERROR(memory.CheckUntouched());
  if (report.bytes == of_host.bytes && report.digest == of_host.digest) return absl::OkStatus();
  return absl::InternalError("another report than that of host memory");
}

inline int64_t CallsNamed(const ExecutorRank& rank, absl::string_view name) {
  return std::ranges::count(rank.stand_in().Calls(), name, &StandInCall::name);
}

inline absl::StatusOr<GpuTaskSpec> SpecOfCollective(const CollectiveStepsCase& of,
                                                    ExecutorRank& rank, DeviceRank device,
                                                    const GpuTiles& tiles) {
  std::vector<std::vector<DeviceId>> each_alone;
  for (const DeviceId& name : of.plan.tensors().devices()) each_alone.push_back({name});
  ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(of.plan, each_alone));
  ASSIGN_OR_RETURN(auto part, PreparedPart::Create(
                                  std::make_shared<const WorkerPart>(std::move(parts[device]))));
  return rank.Spec(std::move(part), tiles, {.staging_bytes = 4 << 20, .checksums = of.checksums});
}

inline absl::Status RunCollectives(ExecutorRank& rank, DeviceRank device,
                                   const CollectiveStepsCase& of, MeshRunner& hosts) {
  const TileMemory memory(of.plan);
  if (of.sums) FillNumbers(of.plan, memory, 1);
  const int64_t gathers = CallsNamed(rank, "ncclAllGather");
  const int64_t scatters = CallsNamed(rank, "ncclReduceScatter");
  const int64_t all_reduces = CallsNamed(rank, "ncclAllReduce");
  RandomSource random(device);
  ASSIGN_OR_RETURN(const TilesOnGpu tiles,
                   TilesOnGpu::Create(rank.gpu(), of.plan, device, memory, random));
  ASSIGN_OR_RETURN(GpuTaskSpec spec, SpecOfCollective(of, rank, device, tiles.gpu()));
  ASSIGN_OR_RETURN(const TaskReport report, rank.Run(std::move(spec)));
  tiles.Fetch();
  if (report.devices.size() != 1) return absl::InternalError("expected a report of the device");
  RETURN_IF_ERROR(report.devices[0].status);
  RETURN_IF_ERROR(of.sums ? CheckWithinRounding(of, memory, device)
                          : CheckAsOnHosts(of, hosts, memory, report.devices[0]));
  // One more by which ranks agree.
  if (CallsNamed(rank, "ncclAllGather") - gathers ==
          of.CallsOf(StepCollective::kAllGather, device) + of.HashCalls(device) + 1 &&
      CallsNamed(rank, "ncclReduceScatter") - scatters ==
          of.CallsOf(StepCollective::kReduceScatter, device) &&
      CallsNamed(rank, "ncclAllReduce") - all_reduces ==
          of.CallsOf(StepCollective::kAllReduce, device)) {
    return absl::OkStatus();
  }
  return absl::InternalError("other calls than the plan's collectives");
}

}  // namespace crossmesh
