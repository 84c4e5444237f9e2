#include "worker/transport/socket/network_interface.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"
#include "worker/transport/socket/tcp_socket.h"

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <optional>

#include <absl/strings/str_cat.h>
#include <ifaddrs.h>

namespace crossmesh {
namespace {

struct FreeInterfaces {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};

bool InSubnet(const IpEndpoint& ip, const InterfaceAddress& of) {
  if (ip.is_ipv4() != of.endpoint.is_ipv4()) return false;
  for (size_t i = 0; i < ip.ip.size(); ++i) {
    if (((ip.ip[i] ^ of.endpoint.ip[i]) & of.mask.ip[i]) != 0) return false;
  }
  return true;
}

// The larger of a setting of an interface and that of all is what holds.
int ArpIgnore(const std::string& interface) {
  int found = 0;
  for (const std::string& name : {interface, std::string("all")}) {
    int value = 0;
    std::ifstream(absl::StrCat("/proc/sys/net/ipv4/conf/", name, "/arp_ignore")) >> value;
    found = std::max(found, value);
  }
  return found;
}

}  // namespace

absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return SocketError("listing network interfaces", errno);
  const std::unique_ptr<ifaddrs, FreeInterfaces> owned(list);
  std::vector<InterfaceAddress> addresses;
  for (; list != nullptr; list = list->ifa_next) {
    const std::optional<IpEndpoint> endpoint = ToEndpoint(list->ifa_addr);
    const std::optional<IpEndpoint> mask = ToEndpoint(list->ifa_netmask);
    if (!endpoint.has_value() || !mask.has_value()) continue;
    addresses.push_back({.interface = list->ifa_name, .endpoint = *endpoint, .mask = *mask});
  }
  return addresses;
}

absl::StatusOr<IpEndpoint> FindInterface(const std::string& interface) {
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> addresses, ListInterfaces());
  std::optional<IpEndpoint> found;
  for (const InterfaceAddress& address : addresses) {
    if (address.interface != interface) continue;
    if (address.endpoint.is_ipv4()) return address.endpoint;
    if (!found.has_value()) found = address.endpoint;
  }
  if (found.has_value()) return *found;
  return absl::UnavailableError(
      absl::StrCat("network interface \"", interface, "\": expected an IP address, found none"));
}

std::vector<std::string> InterfacesInSubnetOf(const IpEndpoint& to,
                                              const std::vector<InterfaceAddress>& addresses) {
  std::vector<std::string> found;
  for (const InterfaceAddress& address : addresses) {
    // An address of this host: nothing leaves by an interface.
    if (address.endpoint.ip == to.ip) return {};
    if (!InSubnet(to, address)) continue;
    if (std::ranges::find(found, address.interface) == found.end()) {
      found.push_back(address.interface);
    }
  }
  return found;
}

absl::StatusOr<std::string> InterfaceToBind(const std::string& interface, const IpEndpoint& to) {
  ASSIGN_OR_RETURN(const std::vector<InterfaceAddress> addresses, ListInterfaces());
  const std::vector<std::string> candidates = InterfacesInSubnetOf(to, addresses);
  if (candidates.size() < 2 || std::ranges::find(candidates, interface) == candidates.end()) {
    return "";
  }
  for (const std::string& candidate : candidates) {
    if (!to.is_ipv4() || ArpIgnore(candidate) > 0) continue;
    LogWarning("socket_interface_not_bound",
               {{"interface", interface},
                {"reason", absl::StrCat("net.ipv4.conf.", candidate, ".arp_ignore is 0")}});
    return "";
  }
  return interface;
}

}  // namespace crossmesh
