#include "common/metrics/prometheus/exporter.h"

#include "common/base/version.h"
#include "common/metrics/metric_names.h"

#include <cstdint>
#include <exception>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>

namespace crossmesh {
namespace {

// The host of a numeric address with a port, with brackets if it has them; empty for any other
// text. The library takes lists of addresses with marks of its own, so nothing else may reach it.
std::string NumericHost(const std::string& address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > UINT16_MAX) {
    return "";
  }
  const std::string host = address.substr(0, colon);
  in6_addr parsed;
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &parsed) == 1;
  const bool is_ipv6 = host.starts_with('[') && host.ends_with(']') &&
                       inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &parsed) == 1;
  return is_ipv4 || is_ipv6 ? host : "";
}

// A connection has a thread, also while it says nothing: of the library's two threads, and its half
// minute of patience, two silent connections would take all.
std::vector<std::string> ServerOptions(const std::string& address) {
  return {"listening_ports", address, "num_threads", "8", "request_timeout_ms", "3000"};
}

bool IsLoopback(const std::string& host) { return host.starts_with("127.") || host == "[::1]"; }

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const Options& options) {
  const std::string host = NumericHost(options.address);
  if (host.empty() || (!options.insecure && !IsLoopback(host))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metrics address \"", options.address, "\": expected a ",
        options.insecure ? "numeric" : "loopback", " address with a port, e.g. 127.0.0.1:9400",
        options.insecure ? "" : "; --insecure allows others"));
  }
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(ServerOptions(options.address));
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(
        absl::StrCat("cannot serve metrics on ", options.address, ": ", error.what()));
  }
  std::string address = absl::StrCat(host, ":", exposer->GetListeningPorts().at(0));
  return std::unique_ptr<MetricsExporter>(
      new MetricsExporter(options, std::move(address), std::move(exposer)));
}

MetricsExporter::MetricsExporter(const Options& options, std::string address,
                                 std::unique_ptr<prometheus::Exposer> exposer)
    : address_(std::move(address)),
      build_(metrics_, metric::kBuildInfo,
             {{{"version", std::string(Version())},
               {"revision", std::string(Revision())},
               {"role", options.role}}}),
      insecure_(metrics_, metric::kInsecure),
      process_(std::make_shared<ProcessCollector>()),
      exposer_(std::move(exposer)) {
  build_.Set(1);
  insecure_.Set(options.insecure ? 1 : 0);
  exposer_->RegisterCollectable(process_);
  Serve(metrics_);
}

void MetricsExporter::Serve(const MetricSet& metrics) {
  collectors_.push_back(std::make_shared<MetricCollector>(metrics));
  exposer_->RegisterCollectable(collectors_.back());
}

}  // namespace crossmesh
