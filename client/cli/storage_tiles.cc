#include "client/cli/storage_tiles.h"

#include "client/safetensors/writer.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <absl/container/inlined_vector.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

// "[3, 17]": an element's coordinates in its tensor.
std::string ElementText(const Shape& shape, int64_t element) {
  absl::InlinedVector<int64_t, 4> coordinates(shape.rank());
  for (int dimension = shape.rank() - 1; dimension >= 0; --dimension) {
    coordinates[dimension] = element % shape[dimension];
    element /= shape[dimension];
  }
  return absl::StrCat("[", absl::StrJoin(coordinates, ", "), "]");
}

// Added for every stretch that is filled or checked; progress need not be finer.
void AddProgress(std::atomic<int64_t>& done_bytes, int64_t bytes) {
  done_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

}  // namespace

void ForEachStretch(const Shape& shape, const Box& box,
                    absl::FunctionRef<void(int64_t first, int64_t count)> visit) {
  if (box.empty()) return;
  absl::InlinedVector<int64_t, 4> stride(shape.rank(), 1);
  for (int d = shape.rank() - 2; d >= 0; --d) stride[d] = stride[d + 1] * shape[d + 1];
  // Dimensions after `split` are whole, so the box's part of `split` is one stretch.
  int split = std::max(shape.rank() - 1, 0);
  while (split > 0 && box[split].length() == shape[split]) --split;
  const int64_t count = shape.rank() == 0 ? 1 : box[split].length() * stride[split];
  absl::InlinedVector<int64_t, 4> at;
  for (int d = 0; d < split; ++d) at.push_back(box[d].begin);
  while (true) {
    int64_t first = shape.rank() == 0 ? 0 : box[split].begin * stride[split];
    for (int d = 0; d < split; ++d) first += at[d] * stride[d];
    visit(first, count);
    int d = split - 1;
    while (d >= 0 && ++at[d] == box[d].end) at[d] = box[d].begin, --d;
    if (d < 0) return;
  }
}

StorageTiles::StorageTiles(const TensorTable& tensors, Side side, DeviceRank device)
    : tensors_(tensors), side_(side), device_(device), layout_(LayOut(tensors, side, device)) {
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    tiles_.push_back(tensors.TileOf(side, group, device));
  }
}

absl::Status StorageTiles::ForEachBox(VisitBox visit) const {
  for (int64_t tensor = 0; tensor < std::ssize(layout_.offset_of_tensor); ++tensor) {
    int64_t offset = layout_.offset_of_tensor[tensor];
    if (offset < 0) continue;
    const int32_t group = tensors_.group_of_tensor()[tensor];
    for (const Box& box : tiles_[group]) {
      RETURN_IF_ERROR(visit(tensor, box, offset));
      offset += box.volume() * tensors_.ItemBytesOf(side_, group);
    }
  }
  return absl::OkStatus();
}

std::string StorageTiles::SlotText(int64_t tensor) const {
  const int32_t group = tensors_.group_of_tensor()[tensor];
  const std::vector<DeviceRank>& slots = tensors_.slots(side_, tensors_.placement_of(side_, group));
  const auto slot = std::ranges::find(slots, device_) - slots.begin();
  return absl::StrCat("slot ", slot, " on ", ToString(tensors_.devices()[device_]));
}

void StorageTiles::Fill(const TensorValues& values, std::span<std::byte> memory,
                        std::atomic<int64_t>& done_bytes) const {
  const absl::Status status = ForEachBox([&](int64_t tensor, const Box& box, int64_t offset) {
    const TensorSpec& spec = values.manifest().tensors()[tensor];
    const int64_t item_bytes = ItemBytes(spec.type);
    ForEachStretch(spec.shape, box, [&](int64_t first, int64_t count) {
      values.Write(tensor, first, memory.subspan(offset, count * item_bytes));
      offset += count * item_bytes;
      AddProgress(done_bytes, count * item_bytes);
    });
    return absl::OkStatus();
  });
  status.IgnoreError();  // the visit cannot fail
}

absl::Status StorageTiles::Check(const TensorValues& values, std::span<const std::byte> memory,
                                 std::atomic<int64_t>& done_bytes) const {
  return ForEachBox([&](int64_t tensor, const Box& box, int64_t offset) -> absl::Status {
    const TensorSpec& spec = values.manifest().tensors()[tensor];
    const int64_t item_bytes = ItemBytes(spec.type);
    absl::Status status;
    ForEachStretch(spec.shape, box, [&](int64_t first, int64_t count) {
      const std::span<const std::byte> stretch = memory.subspan(offset, count * item_bytes);
      offset += count * item_bytes;
      AddProgress(done_bytes, count * item_bytes);
      // The visit cannot be ended: after the first wrong element it only counts.
      const std::optional<int64_t> wrong =
          status.ok() ? values.FirstWrong(tensor, first, stretch) : std::nullopt;
      if (!wrong) return;
      status = absl::DataLossError(absl::StrCat(
          "tensor \"", spec.name, "\" element ", ElementText(spec.shape, *wrong), " in ",
          SlotText(tensor), ": expected ", values.ElementText(tensor, *wrong), ", found ",
          BytesText(stretch.subspan((*wrong - first) * item_bytes, item_bytes))));
    });
    return status;
  });
}

void StorageTiles::AddEmptyTensors(const Manifest& manifest,
                                   std::vector<SafetensorsEntry>& entries) const {
  for (int64_t tensor = 0; tensor < std::ssize(layout_.offset_of_tensor); ++tensor) {
    const TensorSpec& spec = manifest.tensors()[tensor];
    const int32_t group = tensors_.group_of_tensor()[tensor];
    if (spec.bytes() > 0 || group < 0) continue;
    const std::vector<DeviceRank>& slots =
        tensors_.slots(side_, tensors_.placement_of(side_, group));
    if (std::ranges::find(slots, device_) != slots.end())
      entries.push_back({.spec = spec, .bytes = {}});
  }
}

absl::Status StorageTiles::Save(const Manifest& manifest, std::span<const std::byte> memory,
                                const std::string& path) const {
  std::vector<SafetensorsEntry> entries;
  int64_t last_tensor = -1;
  RETURN_IF_ERROR(ForEachBox([&](int64_t tensor, const Box& box, int64_t offset) -> absl::Status {
    const TensorSpec& spec = manifest.tensors()[tensor];
    if (std::exchange(last_tensor, tensor) == tensor) {
      return absl::UnimplementedError(absl::StrCat("tensor \"", spec.name, "\" in ",
                                                   SlotText(tensor),
                                                   ": expected a tile of one box to write"));
    }
    std::vector<int64_t> lengths;
    for (const Interval& interval : box.intervals()) lengths.push_back(interval.length());
    ASSIGN_OR_RETURN(Shape shape, Shape::Create(lengths));
    entries.push_back({.spec = {.name = spec.name, .type = spec.type, .shape = std::move(shape)},
                       .bytes = memory.subspan(offset, box.volume() * ItemBytes(spec.type))});
    return absl::OkStatus();
  }));
  AddEmptyTensors(manifest, entries);
  return WriteSafetensors(path, entries);
}

}  // namespace crossmesh
