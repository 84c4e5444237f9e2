#include "common/base/descriptor_datagram.h"

#include "common/base/check.h"

#include <array>
#include <cstring>
#include <utility>

#include <sys/socket.h>

namespace crossmesh {
namespace {

struct ControlBuffer {
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDatagramDescriptorsMax * sizeof(int))> bytes{};
};

}  // namespace

ssize_t SendDatagram(int socket, absl::string_view bytes, std::span<const int> descriptors,
                     int flags) {
  CHECK_LE(descriptors.size(), kDatagramDescriptorsMax);
  iovec payload{.iov_base = const_cast<char*>(bytes.data()), .iov_len = bytes.size()};
  msghdr message{.msg_iov = &payload, .msg_iovlen = 1};
  ControlBuffer control;
  if (!descriptors.empty()) {
    message.msg_control = control.bytes.data();
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(header), descriptors.data(), descriptors.size_bytes());
  }
  return sendmsg(socket, &message, flags | MSG_NOSIGNAL);
}

ReceivedDatagram ReceiveDatagram(int socket, std::span<char> bytes, int flags) {
  iovec payload{.iov_base = bytes.data(), .iov_len = bytes.size()};
  ControlBuffer control;
  msghdr message{.msg_iov = &payload,
                 .msg_iovlen = 1,
                 .msg_control = control.bytes.data(),
                 .msg_controllen = control.bytes.size()};
  ReceivedDatagram received;
  received.size = recvmsg(socket, &message, flags | MSG_CMSG_CLOEXEC);
  if (received.size < 0) return received;
  received.is_cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int descriptor = UniqueFd::kNone;
      std::memcpy(&descriptor, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      received.descriptors.emplace_back(descriptor);
    }
  }
  return received;
}

UniqueFd ReceivedDatagram::TakeDescriptor() {
  UniqueFd first = descriptors.empty() ? UniqueFd() : std::move(descriptors.front());
  descriptors.clear();
  return first;
}

}  // namespace crossmesh
