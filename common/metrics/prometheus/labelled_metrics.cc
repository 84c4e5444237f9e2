#include "common/metrics/prometheus/labelled_metrics.h"

namespace crossmesh {

LabelSets OneOf(absl::string_view key, std::span<const absl::string_view> values) {
  LabelSets sets;
  for (const absl::string_view value : values) {
    sets.push_back({{std::string(key), std::string(value)}});
  }
  return sets;
}

LabelSets TransportLinkLabels() {
  LabelSets sets;
  for (const auto& [transport, link] : kTransportLinks) {
    sets.push_back({{"transport", std::string(transport)}, {"link", std::string(link)}});
  }
  return sets;
}

LabelSets MethodLabels(std::span<const RpcMethod> methods) {
  LabelSets sets;
  for (const RpcMethod& method : methods) {
    sets.push_back({{"grpc_service", std::string(method.service)},
                    {"grpc_method", std::string(method.method)}});
  }
  return sets;
}

prometheus::Family<prometheus::Counter>& AddFamily(prometheus::Registry& registry,
                                                   const MetricName& name,
                                                   prometheus::Counter* /*kind*/) {
  return prometheus::BuildCounter()
      .Name(std::string(name.name))
      .Help(std::string(name.help))
      .Register(registry);
}

prometheus::Family<prometheus::Gauge>& AddFamily(prometheus::Registry& registry,
                                                 const MetricName& name,
                                                 prometheus::Gauge* /*kind*/) {
  return prometheus::BuildGauge()
      .Name(std::string(name.name))
      .Help(std::string(name.help))
      .Register(registry);
}

prometheus::Family<prometheus::Histogram>& AddFamily(prometheus::Registry& registry,
                                                     const MetricName& name,
                                                     prometheus::Histogram* /*kind*/) {
  return prometheus::BuildHistogram()
      .Name(std::string(name.name))
      .Help(std::string(name.help))
      .Register(registry);
}

}  // namespace crossmesh
