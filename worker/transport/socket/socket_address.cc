#include "worker/transport/socket/socket_address.h"

#include "common/base/little_endian.h"

#include <algorithm>
#include <cstddef>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <xxhash.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kMagic = "XMESHSOC";
constexpr char kVersion = 2;
constexpr size_t kChecksumBytes = 8;
constexpr size_t kBytes = 8 + 1 + 1 + 4 + 4 + 16 + 16 + 2 + kChecksumBytes;
constexpr std::array<char, 12> kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, '\xff', '\xff'};

// Takes fields off the front of bytes that were found to be long enough.
class Fields {
 public:
  explicit Fields(absl::string_view bytes) : bytes_(bytes) {}

  absl::string_view Text(size_t count) {
    const absl::string_view text = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return text;
  }
  uint64_t Number(size_t count) { return FromLittleEndian(Text(count)); }
  std::array<char, 16> Sixteen() {
    std::array<char, 16> bytes;
    const absl::string_view text = Text(bytes.size());
    std::copy(text.begin(), text.end(), bytes.begin());
    return bytes;
  }

 private:
  absl::string_view bytes_;
};

absl::Status Refuse(absl::string_view bytes, absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat("socket address of ", bytes.size(), " bytes: ", what));
}

}  // namespace

bool IpEndpoint::is_ipv4() const {
  return std::equal(kIpv4Prefix.begin(), kIpv4Prefix.end(), ip.begin());
}

std::string IpEndpoint::ToString() const {
  std::array<char, INET6_ADDRSTRLEN> text = {};
  if (is_ipv4()) {
    inet_ntop(AF_INET, ip.data() + kIpv4Prefix.size(), text.data(), text.size());
    return absl::StrCat(text.data(), ":", port);
  }
  inet_ntop(AF_INET6, ip.data(), text.data(), text.size());
  return absl::StrCat("[", text.data(), "]:", port);
}

std::string SocketAddress::Encode() const {
  std::string bytes(kMagic);
  bytes += kVersion;
  bytes += shared_memory ? '\1' : '\0';
  bytes += ToLittleEndian(nonce_file.pid, 4);
  bytes += ToLittleEndian(nonce_file.fd, 4);
  bytes.append(nonce.begin(), nonce.end());
  bytes.append(endpoint.ip.begin(), endpoint.ip.end());
  bytes += ToLittleEndian(endpoint.port, 2);
  return bytes + ToLittleEndian(XXH3_64bits(bytes.data(), bytes.size()), kChecksumBytes);
}

absl::StatusOr<SocketAddress> SocketAddress::Decode(absl::string_view bytes) {
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return Refuse(bytes, absl::StrCat("expected it to begin with ", kMagic));
  }
  // Before the size, which another version may have changed.
  if (bytes.size() > kMagic.size() && bytes[kMagic.size()] != kVersion) {
    return Refuse(bytes, absl::StrCat("expected version ", int{kVersion}, ", found ",
                                      int{bytes[kMagic.size()]}));
  }
  if (bytes.size() != kBytes) return Refuse(bytes, absl::StrCat("expected ", kBytes, " bytes"));
  const size_t hashed = kBytes - kChecksumBytes;
  if (Fields(bytes.substr(hashed)).Number(kChecksumBytes) != XXH3_64bits(bytes.data(), hashed)) {
    return Refuse(bytes, "its checksum does not match");
  }
  Fields fields(bytes.substr(kMagic.size() + 1));
  const uint64_t flags = fields.Number(1);
  if (flags > 1) return Refuse(bytes, absl::StrCat("expected flags 0 or 1, found ", flags));
  SocketAddress address;
  address.shared_memory = flags == 1;
  address.nonce_file.pid = static_cast<uint32_t>(fields.Number(4));
  address.nonce_file.fd = static_cast<uint32_t>(fields.Number(4));
  address.nonce = fields.Sixteen();
  address.endpoint.ip = fields.Sixteen();
  address.endpoint.port = static_cast<uint16_t>(fields.Number(2));
  return address;
}

}  // namespace crossmesh
