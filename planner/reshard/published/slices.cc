#include "planner/reshard/published/slices.h"

#include "common/base/status_macros.h"
#include "planner/network/routing.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include <absl/container/flat_hash_map.h>
#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The first cell, in row-major order, of every set of devices.
using FirstCells = absl::flat_hash_map<int32_t, int64_t>;

// Slots of a placement by device: for sorting devices by slot.
std::vector<int32_t> SlotOfDevice(const TensorTable& tensors, Side side, int32_t placement) {
  std::vector<int32_t> slot_of_device(tensors.devices().size(), -1);
  int32_t slot = 0;
  for (const DeviceRank device : tensors.slots(side, placement)) slot_of_device[device] = slot++;
  return slot_of_device;
}

void SortBySlot(std::span<DeviceRank> devices, std::span<const int32_t> slot_of_device) {
  std::ranges::sort(devices, {}, [&](DeviceRank device) { return slot_of_device[device]; });
}

// Classes of a grid as places in its list, in the order of the published strategies.
std::vector<int64_t> InPublishedOrder(const GroupGrid& grid, const Slicing& slicing) {
  FirstCells holder_cell, receiver_cell;
  for (int64_t cell = 0; cell < static_cast<int64_t>(grid.class_of_cell.size()); ++cell) {
    if (grid.class_of_cell[cell] == kNoClass) continue;
    const SliceClass& slice_class = slicing.classes()[grid.class_of_cell[cell]];
    holder_cell.try_emplace(slice_class.holders, cell);
    receiver_cell.try_emplace(slice_class.receivers, cell);
  }
  std::vector<int64_t> order(grid.classes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::ranges::sort(order, {}, [&](int64_t i) {
    const SliceClass& slice_class = slicing.classes()[grid.classes[i]];
    // The released code walks destination tiles, and for each the source tiles that it meets.
    return std::tuple(receiver_cell[slice_class.receivers], holder_cell[slice_class.holders]);
  });
  return order;
}

absl::StatusOr<int64_t> CountSlices(absl::string_view strategy, const TensorTable& tensors,
                                    const Slicing& slicing) {
  const int32_t groups = static_cast<int32_t>(tensors.groups().size());
  int64_t slices = 0, devices = 0;
  for (int32_t g = 0; g < groups; ++g) {
    const int64_t of_group = tensors.tensors_in_group(g);
    if (of_group == 0) continue;
    slices += of_group * std::ssize(slicing.grid(g).classes);
    RETURN_IF_ERROR(CheckRelayCount(strategy, slices));
    for (const ClassIndex c : slicing.grid(g).classes) {
      devices += of_group * (std::ssize(slicing.holders(c)) + std::ssize(slicing.receivers(c)));
    }
    if (devices > Plan::kHopsMax) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "strategy ", strategy, " chooses among ", devices,
          " holders and receivers of all slices, or more; expected at most ", Plan::kHopsMax));
    }
  }
  return slices;
}

}  // namespace

std::vector<Slices::Ordered> Slices::AddParties(const TensorTable& tensors, const Slicing& slicing,
                                                int32_t group) {
  const TensorGroup& spec = tensors.groups()[group];
  const std::vector<int32_t> source_slot = SlotOfDevice(tensors, Side::kSource, spec.source);
  const std::vector<int32_t> destination_slot =
      SlotOfDevice(tensors, Side::kDestination, spec.destination);
  const auto add_list = [this](auto&& append, std::span<const int32_t> slot_of_device) {
    const int64_t begin = first_.back();
    append();
    SortBySlot(std::span(devices_).subspan(begin), slot_of_device);
    first_.push_back(static_cast<int64_t>(devices_.size()));
  };
  std::vector<Ordered> result;
  for (const int64_t index : InPublishedOrder(slicing.grid(group), slicing)) {
    const ClassIndex c = slicing.grid(group).classes[index];
    const std::span<const DeviceRank> holders = slicing.holders(c);
    result.push_back({index, static_cast<int32_t>((first_.size() - 1) / 2)});
    add_list([&] { devices_.insert(devices_.end(), holders.begin(), holders.end()); }, source_slot);
    add_list(
        [&] {
          std::ranges::set_difference(slicing.receivers(c), holders, std::back_inserter(devices_));
        },
        destination_slot);
  }
  return result;
}

absl::StatusOr<Slices> Slices::List(absl::string_view strategy, const TensorTable& tensors,
                                    const Slicing& slicing) {
  const int32_t groups = static_cast<int32_t>(tensors.groups().size());
  // Before anything is as large as the slices would be.
  ASSIGN_OR_RETURN(const int64_t count, CountSlices(strategy, tensors, slicing));
  Slices result;
  result.slices_.reserve(count);
  std::vector<std::vector<Ordered>> classes_of_group(groups);
  for (int32_t g = 0; g < groups; ++g) {
    if (tensors.tensors_in_group(g) > 0) {
      classes_of_group[g] = result.AddParties(tensors, slicing, g);
    }
  }
  std::vector<int64_t> packed(slicing.classes().size());  // bytes of each class so far
  const int32_t tensor_count = static_cast<int32_t>(tensors.group_of_tensor().size());
  for (int32_t tensor = 0; tensor < tensor_count; ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    if (group < 0) continue;
    const GroupGrid& grid = slicing.grid(group);
    for (const Ordered& ordered : classes_of_group[group]) {
      const ClassIndex c = grid.classes[ordered.index];
      const int64_t begin = packed[c];
      packed[c] += grid.bytes[ordered.index];
      result.slices_.push_back(
          {.tensor = tensor,
           .slice_class = c,
           .begin = begin,
           .end = packed[c],
           .item_bytes = static_cast<int32_t>(tensors.ItemBytesOf(Side::kDestination, group)),
           .parties = ordered.parties});
    }
  }
  return result;
}

}  // namespace crossmesh
