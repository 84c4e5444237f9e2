#include "tests/simulation/sample_reshards.h"

#include "common/base/check.h"
#include "common/mesh/layout.h"
#include "common/mesh/mesh.h"
#include "common/plan/storage_layout.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <utility>

#include <absl/functional/function_ref.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int64_t kRows = 16;
constexpr int64_t kColumns = 4;
constexpr int64_t kTensors = 3;
constexpr int64_t kChunkBytes = 65536;  // which staging has room for

struct Texts {
  const char* source_mesh;
  const char* source_layout;
  const char* destination_mesh;
  const char* destination_layout;
};

// "[x, -]" is cut by rows, "[-, x]" by columns; axes have two devices.
SampleReshard::Cut CutOf(const char* layout) {
  return {.rows = layout[1] == '-' ? 1 : 2, .columns = layout[4] == '-' ? 1 : 2};
}

SampleReshard MakeSample(int number, const Texts& texts, ReshardRequest asked = {}) {
  const Mesh source = *ParseMesh(texts.source_mesh);
  const Mesh destination = *ParseMesh(texts.destination_mesh);
  TensorTable::Spec spec{.sources = {{source, *ParseLayout(texts.source_layout)}},
                         .destinations = {{destination, *ParseLayout(texts.destination_layout)}},
                         .groups = {{.shape = *Shape::Create(std::vector<int64_t>{kRows, kColumns}),
                                     .type = DataType::kI32}},
                         .group_of_tensor = std::vector<int32_t>(kTensors, 0)};
  if (absl::StrContains(texts.destination_mesh, "replica")) spec.replica_axes = {"replica"};
  absl::StatusOr<TensorTable> tensors = TensorTable::Create(std::move(spec));
  CHECK_OK(tensors);
  asked.tensors = std::make_shared<const TensorTable>(*std::move(tensors));
  SampleReshard sample{.asked = std::move(asked),
                       .source_storage = absl::StrCat("source-", number),
                       .destination_storage = absl::StrCat("destination-", number)};
  sample.sources.assign(source.devices().begin(), source.devices().end());
  sample.destinations.assign(destination.devices().begin(), destination.devices().end());
  sample.source_cut = CutOf(texts.source_layout);
  sample.destination_cut = CutOf(texts.destination_layout);
  return sample;
}

StorageLayout LayoutOf(const SampleReshard& reshard, Side side, size_t device) {
  const DeviceId& id =
      side == Side::kSource ? reshard.sources[device] : reshard.destinations[device];
  const TensorTable& tensors = *reshard.asked.tensors;
  const auto& devices = tensors.devices();
  const auto rank = std::ranges::find(devices, id) - devices.begin();
  return LayOut(tensors, side, static_cast<DeviceRank>(rank));
}

// All elements that the device holds: their place in the storage and what they are in a version.
void ForEachElement(const SampleReshard& reshard, Side side, size_t device,
                    absl::FunctionRef<void(int64_t byte, int32_t element)> visit) {
  const SampleReshard::Cut& cut =
      side == Side::kSource ? reshard.source_cut : reshard.destination_cut;
  const int64_t part = static_cast<int64_t>(device) % cut.parts();
  const int64_t rows = kRows / cut.rows;
  const int64_t columns = kColumns / cut.columns;
  const int64_t first_row = part / cut.columns * rows;
  const int64_t first_column = part % cut.columns * columns;
  const StorageLayout layout = LayoutOf(reshard, side, device);
  for (int64_t tensor = 0; tensor < kTensors; ++tensor) {
    for (int64_t i = 0; i < rows * columns; ++i) {
      const int64_t row = first_row + i / columns;
      const int64_t column = first_column + i % columns;
      visit(layout.offset_of_tensor[tensor] + 4 * i,
            static_cast<int32_t>((tensor * kRows + row) * kColumns + column));
    }
  }
}

constexpr int32_t kElementsMax = 256;  // of a version

}  // namespace

std::vector<SampleReshard> MakeSampleReshards() {
  return {MakeSample(0, {"copy=2 on a.0,b.0", "[-, -]", "replica=2 on c.0,d.0", "[-, -]"}),
          MakeSample(1, {"x=2 on a.0,b.0", "[x, -]", "replica=2,y=2 on a.1,b.1,c.0,d.0", "[y, -]"}),
          MakeSample(2, {"x=2 on c.1,d.1", "[-, x]", "replica=2 on a.1,b.1", "[-, -]"})};
}

std::vector<SampleReshard> MakeSamplesOfAllKinds() {
  std::vector<SampleReshard> samples = MakeSampleReshards();
  samples.push_back(MakeSample(3, {"x=2 on b.0,c.0", "[x, -]", "replica=2 on a.1,d.1", "[-, -]"},
                               {.binding = BindingMode::kInPlace}));
  samples.push_back(MakeSample(4, {"p=2 on a.0,c.0", "[-, -]", "p=2 on a.0,c.0", "[p, -]"},
                               {.strategy = Strategy::kRedistribute,
                                .chunk_bytes = kChunkBytes,
                                .redistribution = {.source_partial = {"p"}, .reduction = "max"}}));
  return samples;
}

int64_t StorageBytesOf(const SampleReshard& reshard, Side side, size_t device) {
  return LayoutOf(reshard, side, device).bytes;
}

void FillStorage(const SampleReshard& reshard, size_t source, int64_t version,
                 std::span<std::byte> bytes) {
  ForEachElement(reshard, Side::kSource, source, [&](int64_t byte, int32_t element) {
    const int32_t value = static_cast<int32_t>(version) * kElementsMax + element;
    std::memcpy(bytes.data() + byte, &value, sizeof(value));
  });
}

std::optional<int64_t> VersionIn(const SampleReshard& reshard, size_t destination,
                                 std::span<const std::byte> bytes) {
  std::optional<int64_t> version;
  bool is_whole = true;
  bool is_new = true;
  ForEachElement(reshard, Side::kDestination, destination, [&](int64_t byte, int32_t element) {
    int32_t value = 0;
    std::memcpy(&value, bytes.data() + byte, sizeof(value));
    is_new &= value == 0;
    is_whole &= value % kElementsMax == element;
    if (!version.has_value()) version = value / kElementsMax;
    is_whole &= *version == value / kElementsMax;
  });
  if (is_new) return 0;
  return is_whole ? version : std::nullopt;
}

}  // namespace crossmesh
