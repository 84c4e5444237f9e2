#include "common/metrics/prometheus/exporter.h"

#include "common/base/version.h"
#include "common/metrics/metric_names.h"
#include "common/metrics/prometheus/labelled_metrics.h"

#include <exception>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/match.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// The host of a loopback address, with brackets if it has them; empty for any other text.
absl::string_view LoopbackHost(absl::string_view address) {
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
      port > UINT16_MAX) {
    return "";
  }
  const absl::string_view host = address.substr(0, colon);
  // The library takes lists of addresses, so every byte is looked at.
  const bool is_ipv4 = absl::StartsWith(host, "127.") &&
                       host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return is_ipv4 || host == "[::1]" ? host : "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<MetricsExporter>> MetricsExporter::Start(const Options& options) {
  const absl::string_view host = LoopbackHost(options.address);
  if (host.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("metrics address \"", options.address,
                     "\": expected a loopback address with a port, e.g. 127.0.0.1:9400"));
  }
  std::unique_ptr<prometheus::Exposer> exposer;
  try {
    exposer = std::make_unique<prometheus::Exposer>(options.address);
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
      registry_(std::make_shared<prometheus::Registry>()),
      process_(std::make_shared<ProcessCollector>()),
      exposer_(std::move(exposer)) {
  const LabelSets build = {{{"version", std::string(Version())},
                            {"revision", std::string(Revision())},
                            {"role", options.role}}};
  Gauges(*registry_, metric::kBuildInfo, build, kNoLabels).At(0).Set(1);
  Gauges(*registry_, metric::kInsecure, kNoLabels, kNoLabels).At(0).Set(options.insecure ? 1 : 0);
  exposer_->RegisterCollectable(registry_);
  exposer_->RegisterCollectable(process_);
}

}  // namespace crossmesh
