#pragma once

#include "worker/transport/socket/socket_address.h"

#include <string>
#include <vector>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace crossmesh {

// An address of a network interface of this host, and its subnet.
struct InterfaceAddress {
  std::string interface;
  IpEndpoint endpoint;  // port 0
  IpEndpoint mask;
};

// All of them. Unavailable: the system does not say.
absl::StatusOr<std::vector<InterfaceAddress>> ListInterfaces();

// The address of an interface; IPv4 first. Unavailable: there is no such interface, or it has no
// address.
absl::StatusOr<IpEndpoint> FindInterface(const std::string& interface);

// The interfaces by which `to` is reached without a router, each once, in the order listed. None
// when `to` is an address of this host.
std::vector<std::string> InterfacesInSubnetOf(const IpEndpoint& to,
                                              const std::vector<InterfaceAddress>& addresses);

// What a socket that connects to `to` must be bound to so that it leaves by `interface`; empty
// where routes are left to decide.
//
// A socket leaves by the interface that the routes say, whichever its source address is. Where
// several NICs are in one subnet that is always the first of them, so a socket of another is bound
// to its interface (SO_BINDTODEVICE, for all processes since Linux 5.7). Between subnets routes
// know more, and inside a host nothing leaves it.
//
// A socket that is bound hears only what comes in by its interface. So each NIC must answer for its
// own addresses only (net.ipv4.conf.all.arp_ignore 1, and arp_announce 2), which is not how systems
// are installed; where it is not so, a warning says that all that is sent to that subnet shares one
// NIC. Sockets that listen, and what they accept, are never bound: hardly anything is sent by them,
// and they serve this host as well.
//
// Unavailable: the system does not list its interfaces.
absl::StatusOr<std::string> InterfaceToBind(const std::string& interface, const IpEndpoint& to);

}  // namespace crossmesh
