#include "worker/transport/striped/striped_address.h"

#include "common/base/little_endian.h"
#include "common/base/status_macros.h"

#include <cstdint>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kMagic = "XMESHNIC";
constexpr char kVersion = 1;
constexpr size_t kSizeBytes = 2;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kHeadBytes = 8 + 1 + 1;

absl::Status Refuse(absl::string_view bytes, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("striped address of ", bytes.size(), " bytes: ", what));
}

// What stands before the addresses, and the checksum after them.
absl::Status CheckFrame(absl::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return Refuse(bytes, absl::StrCat("expected it to begin with ", kMagic));
  }
  // Before the rest, which another version may have changed.
  if (bytes.size() > kMagic.size() && bytes[kMagic.size()] != kVersion) {
    return Refuse(bytes, absl::StrCat("expected version ", int{kVersion}, ", found ",
                                      int{bytes[kMagic.size()]}));
  }
  if (bytes.size() < kHeadBytes + kChecksumBytes || bytes.size() > StripedAddress::kBytesMax) {
    return Refuse(bytes, absl::StrCat("expected ", kHeadBytes + kChecksumBytes, " to ",
                                      StripedAddress::kBytesMax, " bytes"));
  }
  const size_t hashed = bytes.size() - kChecksumBytes;
  if (FromLittleEndian(bytes.substr(hashed)) != XXH3_64bits(bytes.data(), hashed)) {
    return Refuse(bytes, "its checksum does not match");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> StripedAddress::Encode() const {
  if (nics.empty() || nics.size() > kNicsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected 1 to ", kNicsMax, " NICs, found ", nics.size()));
  }
  std::string bytes(kMagic);
  bytes += kVersion;
  bytes += ToLittleEndian(nics.size(), 1);
  for (const std::string& nic : nics) {
    if (nic.empty()) return absl::InvalidArgumentError("expected the address of a NIC, found none");
    bytes += ToLittleEndian(nic.size(), kSizeBytes);
    bytes += nic;
  }
  bytes += ToLittleEndian(XXH3_64bits(bytes.data(), bytes.size()), kChecksumBytes);
  if (bytes.size() <= kBytesMax) return bytes;
  return absl::InvalidArgumentError(absl::StrCat("addresses of ", nics.size(),
                                                 " NICs: expected at most ", kBytesMax,
                                                 " bytes together, found ", bytes.size()));
}

absl::StatusOr<StripedAddress> StripedAddress::Decode(absl::string_view bytes) {
  RETURN_IF_ERROR(CheckFrame(bytes));
  absl::string_view rest = bytes.substr(kHeadBytes, bytes.size() - kHeadBytes - kChecksumBytes);
  const size_t count = FromLittleEndian(bytes.substr(kHeadBytes - 1, 1));
  if (count == 0 || count > kNicsMax) {
    return Refuse(bytes, absl::StrCat("expected 1 to ", kNicsMax, " NICs, found ", count));
  }
  StripedAddress address;
  for (size_t i = 0; i < count; ++i) {
    if (rest.size() < kSizeBytes) return Refuse(bytes, "it ends before its last NIC");
    const size_t size = FromLittleEndian(rest.substr(0, kSizeBytes));
    rest.remove_prefix(kSizeBytes);
    if (size == 0 || size > rest.size()) {
      return Refuse(bytes, absl::StrCat("NIC ", i, ": expected an address of 1 to ", rest.size(),
                                        " bytes, found ", size));
    }
    address.nics.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  if (!rest.empty()) return Refuse(bytes, absl::StrCat(rest.size(), " bytes after its last NIC"));
  return address;
}

}  // namespace crossmesh
