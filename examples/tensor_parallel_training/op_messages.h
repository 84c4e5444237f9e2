#pragma once

#include "examples/tensor_parallel_training/layer_math.h"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::grid_training {

// A message of a transfer that an op needs or gives: what is on one device of its one tensor,
// floats, row-major. However it moves.
struct MessageTile {
  std::string transfer;        // "qkv.sum", "stage1.qkv.sum"
  std::span<std::byte> bytes;  // read until the op is done; or filled by then
};

// The messages of an op on one device, as matrices. All must be read and written.
// Thread-compatible.
class OpMessages {
 public:
  // Must outlive it.
  OpMessages(std::span<const MessageTile> inputs, std::span<const MessageTile> outputs);

  // Is there such a message? Names are without the stage's prefix.
  bool Brings(absl::string_view name) const;
  bool Takes(absl::string_view name) const;

  // FailedPrecondition when there is no such message, InvalidArgument when it has not so many
  // floats.
  absl::StatusOr<Matrix> Read(absl::string_view name, Eigen::Index rows, Eigen::Index columns);
  absl::Status Write(absl::string_view name, const Matrix& values);

  // InvalidArgument, with the name of a message that was not read or written.
  absl::Status CheckAllUsed() const;

 private:
  struct End {
    std::string name;
    std::span<std::byte> bytes;
    bool is_used = false;
  };
  static std::vector<End> EndsOf(std::span<const MessageTile> tiles);
  static End* Find(std::vector<End>& ends, absl::string_view name);
  static absl::Status Use(End* end, absl::string_view name, size_t bytes);

  std::vector<End> inputs_;
  std::vector<End> outputs_;
};

}  // namespace crossmesh::grid_training
