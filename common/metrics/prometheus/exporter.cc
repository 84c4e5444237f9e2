#include "common/metrics/prometheus/exporter.h"

#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/prometheus/metric_collector.h"
#include "common/metrics/prometheus/process_collector.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <arpa/inet.h>
#include <prometheus/text_serializer.h>

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

bool IsLoopback(const std::string& host) { return host.starts_with("127.") || host == "[::1]"; }

constexpr int kUnavailable = 503;

WebServer::Page PageOf(const ProbeAnswer& answer) {
  return {.code = answer.is_good ? 200 : kUnavailable, .text = answer.reason + "\n"};
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const Options& options) {
  const std::string host = NumericHost(options.address);
  if (host.empty() || (!options.insecure && !IsLoopback(host))) {
    return absl::InvalidArgumentError(absl::StrCat(
        "metrics address \"", options.address, "\": expected a ",
        options.insecure ? "numeric" : "loopback", " address with a port, e.g. 127.0.0.1:9400",
        options.insecure ? "" : "; --insecure allows others"));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<WebServer> server, WebServer::Start(options.address));
  std::string address = absl::StrCat(host, ":", server->port());
  return std::unique_ptr<MetricsExporter>(
      new MetricsExporter(options, std::move(address), std::move(server)));
}

MetricsExporter::MetricsExporter(const Options& options, std::string address,
                                 std::unique_ptr<WebServer> server)
    : address_(std::move(address)),
      build_(metrics_, metric::kBuildInfo,
             {{{"version", std::string(Version())},
               {"revision", std::string(Revision())},
               {"role", options.role}}}),
      insecure_(metrics_, metric::kInsecure),
      collectors_({std::make_shared<ProcessCollector>()}),
      server_(std::move(server)) {
  build_.Set(1);
  insecure_.Set(options.insecure ? 1 : 0);
  Serve(metrics_);
  server_->Serve("/metrics", [this] {
    return WebServer::Page{.type = "text/plain; version=0.0.4; charset=utf-8", .text = Text()};
  });
}

void MetricsExporter::Serve(const MetricSet& metrics) {
  const MutexLock lock(mutex_);
  collectors_.push_back(std::make_shared<MetricCollector>(metrics));
}

void MetricsExporter::ServeProbes(const Probes& probes) {
  server_->Serve("/livez", [live = probes.live] { return PageOf(live()); });
  server_->Serve("/readyz", [ready = probes.ready] { return PageOf(ready()); });
  server_->Serve("/startupz", [started = probes.started] { return PageOf(started()); });
}

std::string MetricsExporter::Text() const {
  std::vector<std::shared_ptr<const prometheus::Collectable>> collectors;
  {
    const MutexLock lock(mutex_);
    collectors = collectors_;
  }
  std::vector<prometheus::MetricFamily> families;
  for (const auto& collector : collectors) {
    std::vector<prometheus::MetricFamily> some = collector->Collect();
    families.insert(families.end(), std::make_move_iterator(some.begin()),
                    std::make_move_iterator(some.end()));
  }
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace crossmesh
