#pragma once

#include "common/base/unique_fd.h"

#include <cstddef>
#include <span>
#include <vector>

#include <absl/strings/string_view.h>
#include <sys/types.h>

namespace crossmesh {

// Datagrams of Unix sockets with descriptors along (SCM_RIGHTS), of which one takes this many.
inline constexpr size_t kDatagramDescriptorsMax = 2;

// As sendmsg, which never raises a signal here. The descriptors stay the caller's.
ssize_t SendDatagram(int socket, absl::string_view bytes, std::span<const int> descriptors,
                     int flags = 0);

struct ReceivedDatagram {
  ssize_t size = -1;    // as of recvmsg, which also sets errno
  bool is_cut = false;  // it had more bytes, or descriptors, than there was room for
  // Closed when a program is started. The system has closed those without room.
  std::vector<UniqueFd> descriptors;

  // The first one; others are closed.
  UniqueFd TakeDescriptor();
};

// As recvmsg.
ReceivedDatagram ReceiveDatagram(int socket, std::span<char> bytes, int flags = 0);

}  // namespace crossmesh
