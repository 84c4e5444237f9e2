#pragma once

#include "client/safetensors/file.h"
#include "common/mesh/box.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh::training {

// Elements of a tensor of two dimensions, with their place in the whole of it.
struct CheckpointBox {
  std::string tensor;
  Box box;
  std::span<const float> values;  // row by row
};

// Writes what a process has of a training after so many steps: a safetensors file, in which a box
// is a tensor by the name "layer3.qkv [4:6, 0:16]", and which has "steps" as well. As
// WriteSafetensors.
absl::Status WriteCheckpoint(const std::string& path, int64_t steps,
                             std::span<const CheckpointBox> boxes);

// The files of some processes, or of all: what any process needs of a tensor is read from them,
// however it was cut when they were written. Immutable.
class CheckpointFiles {
 public:
  // As SafetensorsFile::Open. InvalidArgument, naming file and tensor: what WriteCheckpoint does
  // not write; files of different steps; no files.
  static absl::StatusOr<CheckpointFiles> Open(std::span<const std::string> paths);

  int64_t steps() const { return steps_; }
  // The elements of a box, row by row. NotFound, naming the first one that no file has. Cost:
  // linear in the tensor's boxes and in the elements.
  absl::Status Read(absl::string_view tensor, const Box& box, std::span<float> values) const;

 private:
  struct Stored {
    Box box;
    std::span<const std::byte> bytes;  // of files_
  };
  absl::Status Add(const SafetensorsFile& file);

  std::vector<SafetensorsFile> files_;
  std::map<std::string, std::vector<Stored>, std::less<>> boxes_;  // by tensor
  int64_t steps_ = -1;
};

}  // namespace crossmesh::training
