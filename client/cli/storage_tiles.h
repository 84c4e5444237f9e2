#pragma once

#include "client/cli/tensor_values.h"
#include "client/safetensors/writer.h"
#include "common/mesh/box.h"
#include "common/mesh/shape.h"
#include "common/plan/storage_layout.h"
#include "common/plan/tensor_table.h"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <absl/functional/function_ref.h>
#include <absl/status/status.h>

namespace crossmesh {

// Calls `visit` with the elements of a box in row-major order, as stretches that are contiguous in
// the tensor: the first element's place in the tensor, and how many.
void ForEachStretch(const Shape& shape, const Box& box,
                    absl::FunctionRef<void(int64_t first, int64_t count)> visit);

// The tiles of one device on one side in a storage's memory, where StorageLayout puts them.
// Thread-compatible; keeps references to its arguments.
class StorageTiles {
 public:
  StorageTiles(const TensorTable& tensors, Side side, DeviceRank device);

  // Of the whole storage.
  int64_t bytes() const { return layout_.bytes; }

  // `memory` has bytes() bytes; what is done is added to `done_bytes`.
  void Fill(const TensorValues& values, std::span<std::byte> memory,
            std::atomic<int64_t>& done_bytes) const;
  // DataLoss for the first wrong element, naming tensor, element, what was expected and found, and
  // the slot.
  absl::Status Check(const TensorValues& values, std::span<const std::byte> memory,
                     std::atomic<int64_t>& done_bytes) const;
  // Writes the tiles as a safetensors file, tensors named as in the manifest, those without
  // elements as well. Unimplemented for a tile of more than one box.
  absl::Status Save(const Manifest& manifest, std::span<const std::byte> memory,
                    const std::string& path) const;

 private:
  // A box of a tile, and where it begins in the storage.
  using VisitBox = absl::FunctionRef<absl::Status(int64_t tensor, const Box& box, int64_t offset)>;
  absl::Status ForEachBox(VisitBox visit) const;
  std::string SlotText(int64_t tensor) const;
  // Tensors without elements have no box; a program that loads the file looks for them all the
  // same. They have their whole shape, of which a part has as many elements.
  void AddEmptyTensors(const Manifest& manifest, std::vector<SafetensorsEntry>& entries) const;

  const TensorTable& tensors_;
  const Side side_;
  const DeviceRank device_;
  StorageLayout layout_;
  std::vector<Tile> tiles_;  // by group
};

}  // namespace crossmesh
