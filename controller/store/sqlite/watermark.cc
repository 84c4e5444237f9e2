#include "controller/store/sqlite/watermark.h"

#include "common/base/little_endian.h"
#include "common/base/status_macros.h"
#include "controller/store/sqlite/store_head.h"
#include "controller/store/store_error.h"

#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kMagic = "XMWM0001";
constexpr int64_t kPlaceBytes = Watermark::kFileBytes / 2;  // of which the first 56 are used
constexpr size_t kFieldBytes = 8;
constexpr size_t kFields = 6;  // magic, writes, revision, chain, epoch
constexpr size_t kEntryBytes = kFieldBytes * (kFields + 1);

struct Entry {
  uint64_t writes = 0;
  StoreMark mark;
};

std::string Encode(const Entry& entry) {
  std::string bytes(kMagic);
  for (const uint64_t field : {entry.writes, static_cast<uint64_t>(entry.mark.revision),
                               entry.mark.chain.high, entry.mark.chain.low, entry.mark.epoch}) {
    bytes += ToLittleEndian(field, kFieldBytes);
  }
  return bytes + ToLittleEndian(static_cast<uint64_t>(ValueChecksum(bytes)), kFieldBytes);
}

std::optional<Entry> Decode(absl::string_view bytes) {
  const absl::string_view fields = bytes.substr(0, kFieldBytes * kFields);
  const auto field = [&](size_t i) {
    return FromLittleEndian(bytes.substr(i * kFieldBytes, kFieldBytes));
  };
  if (!absl::StartsWith(fields, kMagic)) return std::nullopt;
  if (static_cast<uint64_t>(ValueChecksum(fields)) != field(kFields)) return std::nullopt;
  return Entry{.writes = field(1),
               .mark = {.revision = static_cast<int64_t>(field(2)),
                        .chain = {.high = field(3), .low = field(4)},
                        .epoch = field(5)}};
}

}  // namespace

absl::StatusOr<std::unique_ptr<Watermark>> Watermark::Open(const std::string& path,
                                                           const std::string& vfs) {
  ASSIGN_OR_RETURN(std::unique_ptr<VfsFile> file, VfsFile::Open(path, vfs));
  std::unique_ptr<Watermark> watermark(new Watermark(std::move(file)));
  RETURN_IF_ERROR(watermark->Read(path));
  return watermark;
}

absl::Status Watermark::Read(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string bytes, file_->Read(0, kFileBytes));
  for (int64_t place = 0; place < 2; ++place) {
    const absl::string_view text(bytes.data() + place * kPlaceBytes, kEntryBytes);
    const std::optional<Entry> entry = Decode(text);
    if (entry.has_value() && entry->writes >= writes_) {
      writes_ = entry->writes;
      mark_ = entry->mark;
    }
    // The second place of a new file is empty, and both may be when the power went.
    const bool is_empty = text.find_first_not_of('\0') == absl::string_view::npos;
    if (!entry.has_value() && !is_empty) was_torn_ = true;
  }
  if (mark_.has_value() || !was_torn_) return absl::OkStatus();
  return StoreError(
      StoreErrorKind::kDamaged,
      absl::StrCat("watermark ", path, ": expected a revision with its checksum, found none"));
}

absl::Status Watermark::Write(const StoreMark& mark) {
  const std::string bytes = Encode({.writes = ++writes_, .mark = mark});
  is_synced_ = false;
  RETURN_IF_ERROR(file_->Write(static_cast<int64_t>(writes_ % 2) * kPlaceBytes, bytes));
  mark_ = mark;
  return absl::OkStatus();
}

absl::Status Watermark::Sync() {
  if (is_synced_) return absl::OkStatus();
  RETURN_IF_ERROR(file_->Sync());
  is_synced_ = true;
  return absl::OkStatus();
}

}  // namespace crossmesh
