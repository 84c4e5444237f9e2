#pragma once

#include "worker/transport/socket/socket_address.h"

#include <string>

namespace crossmesh {

// An address in text, "10.0.1.2" or "fd00::5", without a port. What is none fails the test.
IpEndpoint IpOf(const std::string& text);

}  // namespace crossmesh
