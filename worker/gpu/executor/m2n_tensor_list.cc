#include "worker/gpu/executor/m2n_tensor_list.h"

#include "common/base/status_macros.h"
#include "worker/gpu/executor/tile_check.h"

#include <cstdint>

namespace crossmesh {
namespace {

struct SideOfDevice {
  const CompiledPart& compiled;
  Side side;
  const std::vector<uint64_t>& addresses;
};

// Of the device's tile; 0 where it is none of the ranks. M2N reads and writes all tiles of a side.
absl::StatusOr<uint64_t> AddressOf(const SideOfDevice& of, const M2nSide& ranks, int32_t tensor) {
  const DeviceRank place = of.compiled.device() - ranks.first_rank;
  if (place < 0 || place >= ranks.ranks()) return 0;
  RETURN_IF_ERROR(CheckTile(of.compiled, of.side, tensor, of.addresses));
  return of.addresses[tensor];
}

}  // namespace

absl::StatusOr<std::unique_ptr<const M2nTensorList>> M2nTensorList::Create(
    const CompiledPart& compiled, const GpuTiles& tiles) {
  auto list = std::make_unique<M2nTensorList>();
  if (!compiled.is_m2n()) return list;
  const TensorTable& tensors = compiled.part().part().tensors();
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    ASSIGN_OR_RETURN(list->transfers_.emplace_back(), M2nTransferOf(tensors, group));
  }
  const SideOfDevice source = {compiled, Side::kSource, tiles.source};
  const SideOfDevice destination = {compiled, Side::kDestination, tiles.destination};
  for (int32_t tensor = 0; tensor < std::ssize(tensors.group_of_tensor()); ++tensor) {
    const int32_t group = tensors.group_of_tensor()[tensor];
    if (group < 0) continue;
    const M2nTransfer& transfer = list->transfers_[group];
    M2nTensor added = {.transfer = &transfer,
                       .item_bytes = tensors.ItemBytesOf(Side::kSource, group)};
    ASSIGN_OR_RETURN(added.source, AddressOf(source, transfer.source, tensor));
    ASSIGN_OR_RETURN(added.destination, AddressOf(destination, transfer.destination, tensor));
    list->tensors_.push_back(added);
  }
  return list;
}

}  // namespace crossmesh
