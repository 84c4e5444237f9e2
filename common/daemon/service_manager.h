#pragma once

#include <absl/status/status.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Tells the service manager that started this process what state it is in, e.g. "READY=1", as
// sd_notify(3) describes: one datagram to the Unix socket that NOTIFY_SOCKET names. Does nothing
// without that variable. Unavailable: the socket does not take it.
absl::Status TellServiceManager(absl::string_view state);

}  // namespace crossmesh
