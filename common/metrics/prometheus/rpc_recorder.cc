#include "common/metrics/prometheus/labelled_metrics.h"
#include "common/metrics/prometheus/recorders.h"

#include <string>
#include <utility>

#include <absl/container/flat_hash_map.h>

namespace crossmesh {
namespace {

class RpcRecorder final : public RpcMetrics {
 public:
  RpcRecorder(prometheus::Registry& registry, std::span<const RpcMethod> methods)
      : labels_(MethodLabels(methods)),
        started_(registry, metric::kRpcStarted, labels_, kNoLabels),
        handled_(
            AddFamily(registry, metric::kRpcHandled, static_cast<prometheus::Counter*>(nullptr))),
        seconds_(registry, metric::kRpcSeconds, labels_, metric::kLatencyBuckets),
        in_flight_(registry, metric::kRpcInFlight, labels_, kNoLabels) {
    for (const RpcMethod& method : methods) {
      places_.emplace(std::pair(method.service, method.method), places_.size());
    }
    for (size_t i = 0; i < labels_.size(); ++i) {
      Handled(i, absl::StatusCode::kOk);
      Handled(i, absl::StatusCode::kUnavailable);
    }
  }

  void CallStarted(absl::string_view service, absl::string_view method) override {
    const auto place = places_.find({service, method});
    if (place == places_.end()) return;
    started_.At(place->second).Increment();
    in_flight_.At(place->second).Increment();
  }

  void CallEnded(absl::string_view service, absl::string_view method, absl::StatusCode code,
                 absl::Duration duration) override {
    const auto place = places_.find({service, method});
    if (place == places_.end()) return;
    Handled(place->second, code).Increment();
    seconds_.At(place->second).Observe(absl::ToDoubleSeconds(duration));
    in_flight_.At(place->second).Decrement();
  }

 private:
  // Made when it is first asked for: most pairs of method and code never occur.
  prometheus::Counter& Handled(size_t method, absl::StatusCode code) {
    prometheus::Labels labels = labels_[method];
    labels.emplace("grpc_code", std::string(kRpcCodes[static_cast<size_t>(code)]));
    return handled_.Add(labels);
  }

  const LabelSets labels_;
  absl::flat_hash_map<std::pair<absl::string_view, absl::string_view>, size_t> places_;
  Counters started_;
  prometheus::Family<prometheus::Counter>& handled_;
  Histograms seconds_;
  Gauges in_flight_;
};

}  // namespace

std::unique_ptr<RpcMetrics> MakeRpcMetrics(prometheus::Registry& registry,
                                           std::span<const RpcMethod> methods) {
  return std::make_unique<RpcRecorder>(registry, methods);
}

}  // namespace crossmesh
