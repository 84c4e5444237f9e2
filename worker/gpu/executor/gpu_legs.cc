#include "worker/gpu/executor/gpu_legs.h"

#include "common/base/digest_builder.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/plan/communicator_splits.h"
#include "common/plan/course.h"
#include "common/plan/course_tables.h"
#include "common/plan/step_collective.h"
#include "worker/courses/course_places.h"
#include "worker/executor/prepared_part.h"
#include "worker/gpu/device/gpu_memory.h"
#include "worker/gpu/executor/device_pointer.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

BoundTiles AsPointers(std::span<const uint64_t> addresses) {
  BoundTiles tiles;
  for (const uint64_t address : addresses) {
    tiles.tensor.push_back(DevicePointer<std::byte>(address));
  }
  return tiles;
}

std::vector<uint64_t> AsAddresses(const BoundTiles& tiles) {
  std::vector<uint64_t> addresses;
  for (const std::byte* const tile : tiles.tensor) {
    addresses.push_back(reinterpret_cast<uint64_t>(tile));
  }
  return addresses;
}

LegReduction LegReductionOf(const CoursePlaces::Reducing& reducing) {
  return {.type = reducing.type,
          .segment = {.address = reinterpret_cast<uint64_t>(reducing.summands.first),
                      .distance_bytes = reducing.summands.distance_bytes,
                      .bytes = reducing.rows.bytes,
                      .to_address = reinterpret_cast<uint64_t>(reducing.out),
                      .row_bytes = reducing.rows.row_bytes,
                      .to_pitch_bytes = reducing.out_pitch,
                      .summands = static_cast<int32_t>(reducing.summands.count)}};
}

// Adds the legs of courses, one after the other, of which `made` has the rest.
class LegMaker {
 public:
  LegMaker(const GpuTiles& tiles, const CompiledPart::Options& options, GpuLegs& made)
      : options_(options), made_(made), task_({.part = made.part}) {
    task_.sources[device()] = AsPointers(tiles.source);
    task_.destinations[device()] = AsPointers(tiles.destination);
  }

  absl::Status Add(const Course<WorkerPart>& course, const PreparedPart::Steps& steps) {
    const TensorTable& table = course.steps.front().move->tensors();
    const std::optional<DeviceRank> rank = table.FindDevice(whole().devices()[device()]);
    const int32_t first_step =
        std::exchange(next_step_, next_step_ + static_cast<int32_t>(std::ssize(course.steps)));
    if (!rank.has_value()) return absl::OkStatus();
    if (std::ranges::any_of(course.steps, &Course<WorkerPart>::Step::adds_own)) {
      return absl::InvalidArgumentError(
          "a course: expected sums in one step over GPUs, found some that go round a ring");
    }
    ASSIGN_OR_RETURN(const auto ranks, RanksInWhole(table));
    std::vector<std::shared_ptr<const CompiledPart>> compiled;
    std::vector<std::optional<int32_t>> splits;
    for (size_t k = 0; k < steps.size(); ++k) {
      CompiledPart::Options options = options_;
      ASSIGN_OR_RETURN(options.collective, CollectiveOf(course.steps[k]));
      splits.push_back(SplitOf(course.steps[k], options.collective));
      ASSIGN_OR_RETURN(compiled.emplace_back(), CompiledPart::Create(steps[k], options));
    }
    const CoursePlaces places(
        task_, course,
        [this](const DeviceId& /*device*/) {
          return DevicePointer<std::byte>(made_.arrays == nullptr ? 0 : made_.arrays->address());
        },
        CourseRunner::kGpu);
    for (int32_t instance = 0; instance < course.instances; ++instance) {
      for (int32_t k = 0; k < std::ssize(steps); ++k) {
        GpuLeg leg = LegAt({.step = k, .instance = instance}, course, places, *rank);
        leg.compiled = compiled[k];
        leg.step = first_step + k;
        leg.split = splits[k];
        leg.ranks_in_whole = ranks;
        made_.legs.push_back(std::move(leg));
      }
    }
    return absl::OkStatus();
  }

 private:
  static absl::StatusOr<std::optional<GroupedCollective>> CollectiveOf(
      const Course<WorkerPart>::Step& step) {
    if (!step.collective.has_value()) return std::nullopt;
    std::optional<GroupedCollective> found =
        FindStepCollective(step.move->tensors(), step.reduction);
    if (found.has_value() && found->kind == step.collective) return found;
    return absl::InvalidArgumentError(absl::StrCat("a step of a course: expected ",
                                                   StepCollectiveName(*step.collective),
                                                   ", found a step that is none"));
  }
  std::optional<int32_t> SplitOf(const Course<WorkerPart>::Step& step,
                                 const std::optional<GroupedCollective>& collective) const {
    if (!collective.has_value()) return std::nullopt;
    const CommunicatorSplit split = SplitFor(whole(), step.move->tensors(), *collective);
    const auto found = std::ranges::find(made_.splits, split);
    if (found == made_.splits.end()) return std::nullopt;
    return static_cast<int32_t>(found - made_.splits.begin());
  }

  // Where it reads and writes, and what it reduces.
  static GpuLeg LegAt(CourseProgress::At at, const Course<WorkerPart>& course,
                      const CoursePlaces& places, DeviceRank rank) {
    GpuLeg leg{.tiles = {.source = AsAddresses(places.Of(at, Side::kSource).at(rank)),
                         .destination = AsAddresses(places.Of(at, Side::kDestination).at(rank))}};
    const std::optional<Reduction>& reduction = course.steps[at.step].reduction;
    if (!reduction.has_value()) return leg;
    leg.reduction = *reduction;
    const bool is_collective = course.steps[at.step].collective.has_value();
    if (is_collective) leg.tiles.destination.clear();
    for (const CoursePlaces::Reducing& reducing : places.ReducingOf(at)) {
      if (is_collective) {
        leg.tiles.destination.push_back(reinterpret_cast<uint64_t>(reducing.out));
      } else {
        leg.reducing.push_back(LegReductionOf(reducing));
      }
    }
    return leg;
  }

  DeviceRank device() const { return made_.part->part().spec().devices.front(); }
  const TensorTable& whole() const { return made_.part->part().tensors(); }

  absl::StatusOr<std::shared_ptr<const std::vector<DeviceRank>>> RanksInWhole(
      const TensorTable& table) const {
    std::vector<DeviceRank> ranks;
    for (const DeviceId& name : table.devices()) {
      const std::optional<DeviceRank> rank = whole().FindDevice(name);
      if (!rank.has_value()) {
        return absl::InvalidArgumentError(
            absl::StrCat("a course: expected devices of its part, found ", ToString(name)));
      }
      ranks.push_back(*rank);
    }
    return std::make_shared<const std::vector<DeviceRank>>(std::move(ranks));
  }

  const CompiledPart::Options& options_;
  GpuLegs& made_;
  TaskSpec task_;
  int32_t next_step_ = 0;
};

}  // namespace

GpuLegs OneLeg(std::shared_ptr<const CompiledPart> compiled, GpuTiles tiles) {
  GpuLegs legs{.part = compiled->shared_part(),
               .agreement = compiled->agreement(),
               .checksums = compiled->checksums(),
               .arrays = nullptr,
               .legs = {}};
  legs.legs.push_back({.compiled = std::move(compiled), .tiles = std::move(tiles)});
  return legs;
}

absl::StatusOr<GpuLegs> LegsOfCourses(Gpu& gpu, const std::shared_ptr<const PreparedPart>& part,
                                      const GpuTiles& tiles, const CompiledPart::Options& options) {
  const WorkerPart::Spec& spec = part->part().spec();
  if (spec.devices.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "courses of a GPU: expected a part of one device, found ", spec.devices.size()));
  }
  GpuLegs legs{
      .part = part, .agreement = {}, .checksums = options.checksums, .arrays = nullptr, .legs = {}};
  // The plan's digest has all steps of all courses.
  DigestBuilder agreement;
  agreement.AddText("crossmesh gpu courses 1");
  agreement.AddDigest(spec.plan);
  agreement.AddDigest(spec.tensors->digest());
  agreement.AddInt(options.checksums ? 1 : 0);
  legs.agreement = agreement.Finish();
  const DeviceId& device = spec.tensors->devices()[spec.devices.front()];
  if (const int64_t bytes = ArrayBytesOf(part->part(), device, CourseRunner::kGpu); bytes > 0) {
    ASSIGN_OR_RETURN(legs.arrays, At(absl::StrCat("arrays between steps, ", bytes,
                                                  " bytes at device ", ToString(device)),
                                     GpuMemory::Create(gpu, ByteCount(bytes), {})));
  }
  const std::vector<CourseTables> courses(part->part().courses().begin(),
                                          part->part().courses().end());
  legs.splits = SplitsOf(part->part().tensors(), courses);
  for (const CourseTables& course : courses) {
    legs.has_collectives |= std::ranges::any_of(
        course.steps, [](const CourseTables::Step& step) { return step.collective.has_value(); });
  }
  LegMaker maker(tiles, options, legs);
  for (size_t c = 0; c < part->courses().size(); ++c) {
    RETURN_IF_ERROR(maker.Add(part->part().courses()[c], part->courses()[c]));
  }
  return legs;
}

}  // namespace crossmesh
