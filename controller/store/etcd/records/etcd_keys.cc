#include "controller/store/etcd/records/etcd_keys.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

constexpr size_t kClusterBytesMax = 63;
constexpr size_t kEpochDigits = 20;

bool IsClusterByte(char c) { return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.'; }

}  // namespace

EtcdKeys::EtcdKeys(absl::string_view cluster) : root_(absl::StrCat("/crossmesh/", cluster, "/")) {}

absl::Status EtcdKeys::Check(absl::string_view cluster) {
  if (!cluster.empty() && cluster.size() <= kClusterBytesMax &&
      std::all_of(cluster.begin(), cluster.end(), IsClusterByte)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("cluster \"", cluster,
                                                 "\": expected a name of 1 to ", kClusterBytesMax,
                                                 " letters, digits, '-', '_' and '.'"));
}

std::string EtcdKeys::Object(absl::string_view key) const { return absl::StrCat(objects(), key); }

std::string EtcdKeys::ChunksOf(absl::string_view id) const {
  return absl::StrCat(chunks(), id, "/");
}

std::string EtcdKeys::Chunk(absl::string_view id, int64_t index) const {
  return absl::StrFormat("%s%010d", ChunksOf(id), index);
}

std::string EtcdPrefixEnd(absl::string_view prefix) {
  std::string end(prefix);
  ++end.back();
  return end;
}

std::string EpochText(uint64_t epoch) { return absl::StrFormat("%020d", epoch); }

std::optional<uint64_t> ParseEpochText(absl::string_view text) {
  uint64_t epoch = 0;
  if (text.size() != kEpochDigits || !std::all_of(text.begin(), text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(text, &epoch)) {
    return std::nullopt;
  }
  return epoch;
}

}  // namespace crossmesh
