#include "tests/benchmark/collective_case.h"

#include "common/base/check.h"
#include "common/mesh/layout_rules.h"
#include "common/plan/proof.h"
#include "common/plan/worker_part.h"
#include "common/reshard/reshard_tensors.h"
#include "tests/benchmark/models.h"

#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/status/statusor.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kColumns = 8192;

struct Shard {
  bool is_partial = false;
  std::string source;
  std::string destination;
};

Shard ShardOf(const std::string& name) {
  if (name == "all_reduce") return {true, "* [-, -]", "* [-, -]"};
  if (name == "all_gather") return {false, "* [x, -]", "* [-, -]"};
  if (name == "reduce_scatter") return {true, "* [-, -]", "* [x, -]"};
  CHECK(name == "all_to_all") << "no collective " << name;
  return {false, "* [x, -]", "* [-, x]"};
}

Plan PlanOf(const std::string& name, const CollectiveCase::Options& options) {
  const Shard shard = ShardOf(name);
  const Mesh mesh =
      *ParseMesh(absl::StrCat("x=", options.devices, " on a.0-", options.devices - 1));
  const int64_t elements = options.bytes / 4;
  const Manifest manifest = name == "all_to_all"
                                ? OneMatrix(options.devices * options.rows, elements / options.rows)
                                : OneMatrix(elements / kColumns, kColumns);
  const LayoutRules source = *LayoutRules::Parse(shard.source);
  const LayoutRules destination = *LayoutRules::Parse(shard.destination);
  absl::StatusOr<TensorTable> tensors = BuildReshardTensors(
      manifest, {.mesh = mesh, .rules = source}, {.mesh = mesh, .rules = destination}, {});
  CHECK_OK(tensors);
  ReshardRequest request{.tensors = std::make_shared<const TensorTable>(*std::move(tensors)),
                         .strategy = Strategy::kRedistribute,
                         .chunk_bytes = options.chunk_bytes};
  if (shard.is_partial) request.redistribution = {.source_partial = {"x"}, .reduction = "sum"};
  absl::StatusOr<Plan> plan = PlanRedistribution(request, NeverCancelled, options.sizes);
  CHECK_OK(plan);
  CHECK_OK(Prove(*plan));
  return *std::move(plan);
}

// Calls `visit` with the index in the whole tensor and the place in the tile of each element.
void ForEachElement(const TensorTable& tensors, Side side, int32_t rank,
                    absl::FunctionRef<void(int64_t index, int64_t place, int64_t count)> visit) {
  const int64_t columns = tensors.groups()[0].shape[1];
  int64_t place = 0;
  for (const Box& box : tensors.TileOf(side, 0, rank)) {
    for (int64_t row = box[0].begin; row < box[0].end; ++row) {
      visit(row * columns + box[1].begin, place, box[1].length());
      place += box[1].length();
    }
  }
}

constexpr int64_t kValues = 61;

// Of the element at `index` of a rank's summand, or of the tensor.
float Value(int64_t index, int32_t rank) {
  return static_cast<float>((index + int64_t{7} * rank) % kValues);
}

}  // namespace

CollectiveCase::CollectiveCase(const std::string& name, const Options& options)
    : name_(name), options_(options), plan_(PlanOf(name, options)) {
  std::vector<std::vector<DeviceId>> devices;
  for (const DeviceId& device : tensors().devices()) devices.push_back({device});
  absl::StatusOr<std::vector<WorkerPart>> parts = CutParts(plan_, devices);
  CHECK_OK(parts);
  for (WorkerPart& part : *parts) {
    auto prepared = PreparedPart::Create(std::make_shared<const WorkerPart>(std::move(part)));
    CHECK_OK(prepared);
    parts_.push_back(*std::move(prepared));
  }
}

int64_t CollectiveCase::least_bytes() const {
  const int64_t once = options_.bytes / options_.devices * (options_.devices - 1);
  return name_ == "all_reduce" ? 2 * once : once;
}

void CollectiveCase::FillSource(int32_t rank, float* tile) const {
  const int32_t summand = ShardOf(name_).is_partial ? rank : 0;
  ForEachElement(tensors(), Side::kSource, rank, [&](int64_t index, int64_t place, int64_t count) {
    for (int64_t i = 0; i < count; ++i) tile[place + i] = Value(index + i, summand);
  });
}

int64_t CollectiveCase::WrongElements(int32_t rank, const float* tile) const {
  const int32_t summands = ShardOf(name_).is_partial ? options_.devices : 1;
  std::array<float, kValues> expected{};  // by index, which repeats
  for (int64_t index = 0; index < kValues; ++index) {
    for (int32_t s = 0; s < summands; ++s) expected[index] += Value(index, s);
  }
  int64_t wrong = 0;
  const auto check = [&](int64_t index, int64_t place, int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      wrong += tile[place + i] == expected[(index + i) % kValues] ? 0 : 1;
    }
  };
  ForEachElement(tensors(), Side::kDestination, rank, check);
  return wrong;
}

}  // namespace crossmesh
