#include "worker/data_exposure.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/data_transport.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/socket_address.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/strings/string_view.h>
#include <arpa/inet.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kInsecure = "--insecure";

// IPv4 networks are those of their mapped addresses, ::ffff:0:0/96, as in IpEndpoint.
struct IpNetwork {
  IpEndpoint address;
  size_t bits = 0;
};

std::optional<IpNetwork> ParseDigits(const std::string& ip, absl::string_view bits) {
  constexpr size_t kIpv4Offset = 12;
  constexpr size_t kBitsMax = 128;
  IpNetwork network;
  uint32_t given = 0;
  if (bits.empty() || !std::all_of(bits.begin(), bits.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(bits, &given)) {
    return std::nullopt;
  }
  network.bits = given;
  if (inet_pton(AF_INET, ip.c_str(), network.address.ip.data() + kIpv4Offset) == 1) {
    network.address.ip[10] = network.address.ip[11] = static_cast<char>(0xff);
    network.bits += kIpv4Offset * 8;
  } else if (inet_pton(AF_INET6, ip.c_str(), network.address.ip.data()) != 1) {
    return std::nullopt;
  }
  if (network.bits > kBitsMax) return std::nullopt;
  return network;
}

bool BitOf(const IpEndpoint& address, size_t bit) {
  return (static_cast<uint8_t>(address.ip[bit / 8]) >> (7 - bit % 8) & 1) != 0;
}

bool Contains(const IpNetwork& network, const IpEndpoint& address) {
  for (size_t bit = 0; bit < network.bits; ++bit) {
    if (BitOf(network.address, bit) != BitOf(address, bit)) return false;
  }
  return true;
}

// InvalidArgument also for a network with bits after its prefix: it may be meant otherwise.
absl::StatusOr<IpNetwork> ParseNetwork(const std::string& text) {
  const size_t slash = text.find('/');
  std::optional<IpNetwork> network;
  if (slash != std::string::npos) {
    network = ParseDigits(text.substr(0, slash), absl::string_view(text).substr(slash + 1));
  }
  for (size_t bit = network.has_value() ? network->bits : 0; network.has_value() && bit < 128;
       ++bit) {
    if (BitOf(network->address, bit)) network.reset();
  }
  if (network.has_value()) return *network;
  return absl::InvalidArgumentError(
      absl::StrCat("trusted network \"", text,
                   "\": expected an address and the length of its prefix, after which all bits "
                   "are 0, e.g. 10.1.0.0/16"));
}

bool IsLoopback(const IpEndpoint& address) {
  static const std::optional<IpNetwork> kIpv4 = ParseDigits("127.0.0.0", "8");
  static const std::optional<IpNetwork> kIpv6 = ParseDigits("::1", "128");
  return Contains(*kIpv4, address) || Contains(*kIpv6, address);
}

absl::Status NotAllowed(const std::string& interface, absl::string_view found,
                        const DataTransportOptions& options) {
  const std::string trusted =
      options.trusted_networks.empty()
          ? "no network is trusted"
          : absl::StrCat("trusted are ", absl::StrJoin(options.trusted_networks, ", "));
  return absl::InvalidArgumentError(
      absl::StrCat("data interface \"", interface,
                   "\": expected a loopback address, one in a trusted network "
                   "(--trusted-network) or --insecure, since tensors travel unencrypted; found ",
                   found, ", and ", trusted));
}

}  // namespace

absl::StatusOr<std::string> FindPermission(const std::string& interface, const IpEndpoint& address,
                                           const DataTransportOptions& options) {
  std::string permission;
  for (const std::string& text : options.trusted_networks) {
    ASSIGN_OR_RETURN(const IpNetwork network, ParseNetwork(text));
    if (permission.empty() && Contains(network, address)) permission = text;
  }
  if (IsLoopback(address)) return "";
  if (!permission.empty()) return permission;
  if (options.insecure) return std::string(kInsecure);
  return NotAllowed(interface, address.ToString(), options);
}

absl::Status CheckDataExposure(const DataTransportOptions& options) {
  for (const std::string& interface : options.interfaces) {
    const absl::StatusOr<IpEndpoint> address = FindInterface(interface);
    std::string permission(kInsecure);
    if (address.ok()) {
      ASSIGN_OR_RETURN(permission, FindPermission(interface, *address, options));
    } else if (options.kind == DataTransport::kSocket) {
      return address.status();
    } else if (!options.insecure) {
      return NotAllowed(interface, "a device without an IP address", options);
    }
    if (permission.empty()) continue;
    LogWarning("insecure_data_plane", {{"interface", interface},
                                       {"address", address.ok() ? address->ToString() : ""},
                                       {"allowed_by", permission}});
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
