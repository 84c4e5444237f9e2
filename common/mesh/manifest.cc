#include "common/mesh/manifest.h"

#include "common/base/status_macros.h"
#include "common/mesh/utf8.h"

#include <absl/status/status.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr size_t kNameBytesMax = 256;

absl::Status CheckName(const TensorSpec& tensor, size_t index) {
  if (tensor.name.empty() || tensor.name.size() > kNameBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", index, " \"", absl::CHexEscape(tensor.name.substr(0, 80)),
        "\": expected a name of 1 to ", kNameBytesMax, " bytes, found ", tensor.name.size()));
  }
  if (!IsValidUtf8(tensor.name)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "tensor ", index, " \"", absl::CHexEscape(tensor.name), "\": the name is not valid UTF-8"));
  }
  return absl::OkStatus();
}

// Lengths go before texts, so that different lists never give the same bytes.
Digest DigestOf(const std::vector<TensorSpec>& tensors) {
  std::string bytes;
  const auto append = [&bytes](int64_t number) {
    for (int shift = 0; shift < 64; shift += 8) {
      bytes.push_back(static_cast<char>(static_cast<uint64_t>(number) >> shift & 0xff));
    }
  };
  for (const TensorSpec& tensor : tensors) {
    append(static_cast<int64_t>(tensor.name.size()));
    bytes.append(tensor.name);
    const absl::string_view type = DataTypeName(tensor.type);
    append(static_cast<int64_t>(type.size()));
    bytes.append(type.data(), type.size());
    append(tensor.shape.rank());
    for (const int64_t length : tensor.shape.lengths()) append(length);
  }
  return Digest::Of(absl::string_view(bytes));
}

}  // namespace

Manifest::Manifest() : digest_(DigestOf({})) {}

absl::StatusOr<Manifest> Manifest::Create(std::vector<TensorSpec> tensors) {
  if (tensors.size() > static_cast<size_t>(kTensorsMax)) {
    return absl::InvalidArgumentError(absl::StrCat("manifest: expected at most ", kTensorsMax,
                                                   " tensors, found ", tensors.size()));
  }
  Manifest manifest;
  manifest.index_.reserve(tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const TensorSpec& tensor = tensors[i];
    RETURN_IF_ERROR(CheckName(tensor, i));
    const auto [found, inserted] = manifest.index_.emplace(tensor.name, static_cast<int64_t>(i));
    if (!inserted) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest: tensor \"", absl::CHexEscape(tensor.name),
                       "\" is named twice, at ", found->second, " and ", i));
    }
    // One tensor has at most 2^51 bytes, so the sum cannot overflow before it is compared.
    manifest.bytes_ += tensor.bytes();
    if (manifest.bytes_ > kBytesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("manifest: expected at most ", kBytesMax, " bytes, found ", manifest.bytes_,
                       " up to tensor \"", absl::CHexEscape(tensor.name), "\""));
    }
  }
  manifest.digest_ = DigestOf(tensors);
  manifest.tensors_ = std::move(tensors);
  return manifest;
}

std::optional<int64_t> Manifest::Find(absl::string_view name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) return std::nullopt;
  return found->second;
}

}  // namespace crossmesh
