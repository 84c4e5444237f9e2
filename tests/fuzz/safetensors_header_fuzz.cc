// A file whose header is accepted has tensors that lie side by side in its data, and that can be
// written to a file of their own.

#include "client/safetensors/file.h"
#include "client/safetensors/header.h"
#include "client/safetensors/writer.h"
#include "common/base/check.h"
#include "common/testing/temporary_folder.h"
#include "tests/fuzz/fuzz_input.h"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace crossmesh {
namespace {

void CheckWritten(const std::vector<SafetensorsEntry>& entries) {
  static const TemporaryFolder folder;
  const std::string path = folder.PathOf("written");
  // The format allows names that a manifest does not.
  if (!WriteSafetensors(path, entries).ok()) return;
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(path);
  CHECK_OK(file);
  CHECK_EQ(file->header().tensors.size(), entries.size());
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  const std::span<const std::byte> file = std::as_bytes(std::span(data, size));
  const absl::StatusOr<SafetensorsHeader> header = ParseSafetensorsHeader(file);
  if (!header.ok()) return;
  std::vector<SafetensorsEntry> entries;
  int64_t next = 0;
  for (const SafetensorsTensor& tensor : header->tensors) {
    CHECK_EQ(tensor.begin, next);
    CHECK_EQ(tensor.end - tensor.begin, tensor.spec.bytes());
    next = tensor.end;
    entries.push_back(
        {.spec = tensor.spec,
         .bytes = file.subspan(header->data_begin + tensor.begin, tensor.end - tensor.begin)});
  }
  CHECK_EQ(header->data_begin + next, static_cast<int64_t>(size));
  CheckWritten(entries);
}

}  // namespace crossmesh
