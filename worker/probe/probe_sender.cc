#include "worker/probe/probe_sender.h"

#include "common/base/status_macros.h"
#include "worker/transport/socket/network_interface.h"
#include "worker/transport/socket/tcp_socket.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace crossmesh {
namespace {

constexpr size_t kPieceBytes = 256 << 10;
// So little waits in this host, so that little is under way when the time is over.
constexpr int kUnsentBytesMax = 256 << 10;

absl::Status NotReached(const ProbeOrder& order, const absl::Status& why) {
  if (absl::IsCancelled(why)) return why;
  return absl::FailedPreconditionError(absl::StrCat("interface \"", order.interface,
                                                    "\" does not reach ", order.to.ToString(), ": ",
                                                    why.message()));
}

absl::StatusOr<UniqueFd> Connect(const ProbeOrder& order, const IpEndpoint& from) {
  ASSIGN_OR_RETURN(const std::string bound, InterfaceToBind(order.interface, order.to));
  return ConnectFrom(from, order.to, bound);
}

absl::StatusOr<absl::Duration> LeastRoundTrip(TimedSocket& socket, const Clock& clock) {
  absl::Duration least = absl::InfiniteDuration();
  for (int i = 0; i < kProbeEchoes; ++i) {
    std::array<char, 1> byte = {};
    const absl::Duration begin = clock.Monotonic();
    RETURN_IF_ERROR(socket.Send(byte));
    RETURN_IF_ERROR(socket.Receive(byte));
    least = std::min(least, clock.Monotonic() - begin);
  }
  return least;
}

absl::Status Flood(TimedSocket& socket, const ProbeOrder& order, const Clock& clock) {
  const std::vector<char> piece(kPieceBytes);
  const absl::Duration end = clock.Monotonic() + order.time;
  int64_t left = order.bytes;
  while (left > 0 && clock.Monotonic() < end) {
    const size_t bytes = std::min(piece.size(), static_cast<size_t>(left));
    ASSIGN_OR_RETURN(const size_t sent, socket.SendSome(std::span(piece).first(bytes)));
    left -= static_cast<int64_t>(sent);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ProbeFigures> SendProbe(const ProbeOrder& order, const ProbePatience& patience) {
  ASSIGN_OR_RETURN(const IpEndpoint from, FindInterface(order.interface));
  absl::StatusOr<UniqueFd> fd = Connect(order, from);
  if (!fd.ok()) return NotReached(order, fd.status());
  static_cast<void>(setsockopt(fd->get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &kUnsentBytesMax,
                               sizeof(kUnsentBytesMax)));
  const absl::Duration connected = patience.clock.Monotonic() + kProbeGrace;
  TimedSocket socket(*std::move(fd), patience);
  if (const absl::Status status = socket.FinishConnect(connected); !status.ok()) {
    return NotReached(order, status);
  }
  RETURN_IF_ERROR(socket.Send(order.token));
  ProbeFigures figures;
  ASSIGN_OR_RETURN(figures.round_trip, LeastRoundTrip(socket, patience.clock));
  RETURN_IF_ERROR(Flood(socket, order, patience.clock));
  socket.CloseSending();
  std::array<char, ProbeReport::kBytes> report = {};
  RETURN_IF_ERROR(socket.Receive(report));
  figures.report = ProbeReport::Decode(report);
  return figures;
}

}  // namespace crossmesh
