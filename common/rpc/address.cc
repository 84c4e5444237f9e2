#include "common/rpc/address.h"

#include "common/base/status_macros.h"

#include <algorithm>

#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>
#include <absl/strings/strip.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

namespace crossmesh {
namespace {

constexpr absl::string_view kForms = "\"unix:/PATH\", \"HOST:PORT\" or \"[IPV6]:PORT\"";
constexpr size_t kUnixPathMax = sizeof(sockaddr_un::sun_path) - 1;
constexpr size_t kPortDigitsMax = 5;

absl::Status Malformed(absl::string_view text, absl::string_view found) {
  return absl::InvalidArgumentError(
      absl::StrCat("address \"", text, "\": expected ", kForms, ", found ", found));
}

absl::StatusOr<RpcAddress> ParseUnix(absl::string_view text, absl::string_view path) {
  if (!absl::StartsWith(path, "/") || absl::EndsWith(path, "/")) {
    return Malformed(text, "a path that does not name a file from the root");
  }
  if (path.size() > kUnixPathMax) {
    return Malformed(text, absl::StrCat("a path of ", path.size(), " bytes, of at most ",
                                        kUnixPathMax, " that the system allows"));
  }
  if (absl::StrContains(path, '\0')) return Malformed(text, "a path with a zero byte");
  return RpcAddress{.unix_path = std::string(path)};
}

bool IsHostByte(char c) { return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_'; }
bool IsIpv6Byte(char c) { return absl::ascii_isxdigit(c) || c == ':' || c == '.'; }

// Four numbers from 0 to 255, the first of which is 127. Whatever else there is, 127.example.org or
// 127.0.0.256, is a name, which a resolver may find on another machine.
bool IsIpv4Loopback(const std::string& host) {
  in_addr address = {};
  return inet_pton(AF_INET, host.c_str(), &address) == 1 &&
         ntohl(address.s_addr) >> 24 == IN_LOOPBACKNET;
}

}  // namespace

bool RpcAddress::local() const {
  return is_unix() || host == "localhost" || host == "::1" || IsIpv4Loopback(host);
}

std::string RpcAddress::ToString() const {
  if (is_unix()) return absl::StrCat("unix:", unix_path);
  if (absl::StrContains(host, ':')) return absl::StrCat("[", host, "]:", port);
  return absl::StrCat(host, ":", port);
}

absl::StatusOr<RpcAddress> ParseRpcAddress(absl::string_view text) {
  absl::string_view rest = text;
  if (absl::ConsumePrefix(&rest, "unix:")) return ParseUnix(text, rest);

  const size_t colon = text.rfind(':');
  if (colon == absl::string_view::npos) return Malformed(text, "no port");
  absl::string_view host = text.substr(0, colon);
  const absl::string_view port_text = text.substr(colon + 1);
  if (absl::ConsumePrefix(&host, "[")) {
    if (!absl::ConsumeSuffix(&host, "]") || host.empty() ||
        !std::all_of(host.begin(), host.end(), IsIpv6Byte)) {
      return Malformed(text, "no IPv6 address in brackets");
    }
  } else if (host.empty() || !std::all_of(host.begin(), host.end(), IsHostByte)) {
    return Malformed(text, "no host");
  }

  uint32_t port = 0;
  if (port_text.empty() || port_text.size() > kPortDigitsMax ||
      !std::all_of(port_text.begin(), port_text.end(), absl::ascii_isdigit) ||
      !absl::SimpleAtoi(port_text, &port) || port > UINT16_MAX) {
    return Malformed(text, "a port that is no number from 0 to 65535");
  }
  return RpcAddress{.host = std::string(host), .port = static_cast<uint16_t>(port)};
}

absl::StatusOr<std::vector<std::string>> ParseAddressList(absl::string_view text) {
  std::vector<std::string> addresses;
  for (const absl::string_view one : absl::StrSplit(text, ',')) {
    RETURN_IF_ERROR(ParseRpcAddress(one).status());
    addresses.emplace_back(one);
  }
  return addresses;
}

absl::Status CheckPlaintextAllowed(const RpcAddress& address, bool insecure) {
  if (insecure || address.local()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("address ", address.ToString(),
                   " is neither a Unix socket nor a loopback address, and the traffic is neither "
                   "encrypted nor authenticated: expected --insecure on both ends to allow it"));
}

}  // namespace crossmesh
