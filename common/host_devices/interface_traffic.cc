#include "common/host_devices/interface_traffic.h"

#include <fstream>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Counters of RDMA ports count words of this size.
constexpr int64_t kRdmaWordBytes = 4;

std::optional<int64_t> ReadCounter(const std::string& path) {
  std::ifstream file(path);
  int64_t value = 0;
  if (!(file >> value) || value < 0) return std::nullopt;
  return value;
}

std::optional<InterfaceTraffic> Both(const std::string& sent_path,
                                     const std::string& received_path) {
  const std::optional<int64_t> sent = ReadCounter(sent_path);
  const std::optional<int64_t> received = ReadCounter(received_path);
  if (!sent.has_value() || !received.has_value()) return std::nullopt;
  return InterfaceTraffic{.sent_bytes = *sent, .received_bytes = *received};
}

}  // namespace

std::optional<InterfaceTraffic> ReadInterfaceTraffic(const std::string& root,
                                                     const std::string& name) {
  if (name.empty() || name.find('/') != std::string::npos || name.front() == '.') {
    return std::nullopt;
  }
  const std::string net = absl::StrCat(root, "sys/class/net/", name, "/statistics/");
  if (auto traffic = Both(net + "tx_bytes", net + "rx_bytes")) return traffic;
  const std::string rdma = absl::StrCat(root, "sys/class/infiniband/", name, "/ports/1/counters/");
  auto words = Both(rdma + "port_xmit_data", rdma + "port_rcv_data");
  if (!words.has_value()) return std::nullopt;
  return InterfaceTraffic{.sent_bytes = words->sent_bytes * kRdmaWordBytes,
                          .received_bytes = words->received_bytes * kRdmaWordBytes};
}

}  // namespace crossmesh
