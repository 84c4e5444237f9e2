#pragma once

#include "client/safetensors/collection.h"
#include "common/mesh/manifest.h"
#include "common/plan/tensor_table.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace crossmesh {

// What every element of every tensor should be. Immutable; thread-safe.
class TensorValues {
 public:
  virtual ~TensorValues() = default;
  virtual const Manifest& manifest() const = 0;
  // Writes elements `first`, `first` + 1, ... of a tensor, in row-major order, until `out` is full.
  virtual void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const = 0;

  // The first element, at or after `first`, that is not as it should be; `found` holds a whole
  // number of elements.
  std::optional<int64_t> FirstWrong(int64_t tensor, int64_t first,
                                    std::span<const std::byte> found) const;
  // The bytes of one element as it should be, in hexadecimal, the most significant first.
  std::string ElementText(int64_t tensor, int64_t element) const;
};

// In hexadecimal, the most significant byte first: "0x3f800000".
std::string BytesText(std::span<const std::byte> element);

// Values that a fast hash derives from tensor and element, cut to the element's size: an element
// in a wrong place is noticed.
class GeneratedValues final : public TensorValues {
 public:
  explicit GeneratedValues(Manifest manifest) : manifest_(std::move(manifest)) {}
  const Manifest& manifest() const override { return manifest_; }
  void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const override;

 private:
  const Manifest manifest_;
};

// The values of safetensors files.
class FileValues final : public TensorValues {
 public:
  explicit FileValues(SafetensorsCollection files) : files_(std::move(files)) {}
  const Manifest& manifest() const override { return files_.manifest(); }
  void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const override;

 private:
  const SafetensorsCollection files_;
};

// What is at the destination of a reshard of these tensors: of the types to which its table
// converts them, with the scales of those that have them after all others.
Manifest ReceivedManifest(const Manifest& manifest, const TensorTable& tensors);

// Other values as they are at the destination of a reshard: converted, where its table says so,
// with the scales of those that have them after all others.
class ReceivedValues final : public TensorValues {
 public:
  // Both must outlive it. Keeps what has scales in memory.
  ReceivedValues(const TensorValues& values, const TensorTable& tensors);
  const Manifest& manifest() const override { return manifest_; }
  void Write(int64_t tensor, int64_t first, std::span<std::byte> out) const override;

 private:
  const TensorValues& values_;
  const TensorTable& tensors_;
  const Manifest manifest_;
  std::map<int64_t, std::vector<std::byte>> quantized_;  // by tensor: elements, and scales as well
};

}  // namespace crossmesh
