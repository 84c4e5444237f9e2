#include "client/safetensors/writer.h"

#include "client/safetensors/header.h"
#include "common/base/little_endian.h"
#include "common/base/status_macros.h"
#include "common/base/unique_fd.h"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace crossmesh {
namespace {

// So that the data starts at a multiple of it.
constexpr size_t kHeaderAlignment = 8;

absl::Status CheckEntries(std::span<const SafetensorsEntry> tensors) {
  std::vector<TensorSpec> specs;
  for (const SafetensorsEntry& tensor : tensors) {
    const auto bytes = static_cast<int64_t>(tensor.bytes.size());
    if (bytes != tensor.spec.bytes()) {
      return absl::InvalidArgumentError(absl::StrCat("tensor \"", tensor.spec.name, "\": expected ",
                                                     tensor.spec.bytes(), " bytes, found ", bytes));
    }
    if (tensor.spec.name == kSafetensorsMetadataKey) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor \"", tensor.spec.name,
                       "\": expected another name, found the one of a file's metadata"));
    }
    specs.push_back(tensor.spec);
  }
  return Manifest::Create(std::move(specs)).status();
}

std::string HeaderOf(std::span<const SafetensorsEntry> tensors) {
  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  int64_t begin = 0;
  for (const SafetensorsEntry& tensor : tensors) {
    const int64_t end = begin + tensor.spec.bytes();
    const std::span<const int64_t> lengths = tensor.spec.shape.lengths();
    header[tensor.spec.name] = {
        {"dtype", std::string(DataTypeName(tensor.spec.type))},
        {"shape", std::vector<int64_t>(lengths.begin(), lengths.end())},
        {"data_offsets", {begin, end}},
    };
    begin = end;
  }
  std::string text = header.dump();
  text.append((kHeaderAlignment - text.size() % kHeaderAlignment) % kHeaderAlignment, ' ');
  return ToLittleEndian(text.size(), kSafetensorsLengthBytes) + text;
}

absl::Status WriteAll(int fd, absl::string_view path, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
    bytes = bytes.subspan(written);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteSafetensors(const std::string& path, std::span<const SafetensorsEntry> tensors) {
  RETURN_IF_ERROR(CheckEntries(tensors));
  // Written beside its place and renamed, so that readers see the whole file or none.
  const std::string partial = absl::StrCat(path, ".partial");
  UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, absl::StrCat("cannot create ", partial));
  absl::Cleanup remove_partial = [&partial] { ::unlink(partial.c_str()); };
  const std::string header = HeaderOf(tensors);
  RETURN_IF_ERROR(WriteAll(fd.get(), partial, std::as_bytes(std::span(header))));
  for (const SafetensorsEntry& tensor : tensors) {
    RETURN_IF_ERROR(WriteAll(fd.get(), partial, tensor.bytes));
  }
  if (::rename(partial.c_str(), path.c_str()) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot rename ", partial, " to ", path));
  }
  std::move(remove_partial).Cancel();
  return absl::OkStatus();
}

}  // namespace crossmesh
