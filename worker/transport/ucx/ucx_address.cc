#include "worker/transport/ucx/ucx_address.h"

#include "common/base/check.h"
#include "common/base/little_endian.h"
#include "worker/transport/boot_id.h"

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kMagic = "XMESHUCX";
constexpr char kVersion = 1;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kPrefixBytes = 8 + 1 + 1 + kBootIdBytes;

std::string Checksum(absl::string_view prefix, absl::string_view worker_address) {
  const std::string bytes = absl::StrCat(prefix, worker_address);
  return ToLittleEndian(XXH3_64bits(bytes.data(), bytes.size()), kChecksumBytes);
}

absl::Status Refuse(absl::string_view bytes, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("UCX address of ", bytes.size(), " bytes: ", what));
}

}  // namespace

std::string UcxAddress::Encode() const {
  CHECK_EQ(boot_id.size(), kBootIdBytes);
  std::string prefix(kMagic);
  prefix += kVersion;
  prefix += shared_memory ? '\1' : '\0';
  prefix += boot_id;
  return absl::StrCat(prefix, Checksum(prefix, worker_address), worker_address);
}

absl::StatusOr<UcxAddress> UcxAddress::Decode(absl::string_view bytes) {
  if (bytes.size() <= kPrefixBytes + kChecksumBytes) {
    return Refuse(bytes, absl::StrCat("expected more than ", kPrefixBytes + kChecksumBytes));
  }
  const absl::string_view prefix = bytes.substr(0, kPrefixBytes);
  const absl::string_view checksum = bytes.substr(kPrefixBytes, kChecksumBytes);
  const absl::string_view worker_address = bytes.substr(kPrefixBytes + kChecksumBytes);
  if (prefix.substr(0, kMagic.size()) != kMagic) {
    return Refuse(bytes, absl::StrCat("expected it to begin with ", kMagic));
  }
  if (prefix[8] != kVersion) {
    return Refuse(bytes, absl::StrCat("expected version ", int{kVersion}, ", found ",
                                      static_cast<int>(prefix[8])));
  }
  if (checksum != absl::string_view(Checksum(prefix, worker_address))) {
    return Refuse(bytes, "its checksum does not match");
  }
  return UcxAddress{.shared_memory = prefix[9] != 0,
                    .boot_id = std::string(prefix.substr(10)),
                    .worker_address = std::string(worker_address)};
}

}  // namespace crossmesh
