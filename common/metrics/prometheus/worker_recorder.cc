#include "common/metrics/prometheus/labelled_metrics.h"
#include "common/metrics/prometheus/recorders.h"

namespace crossmesh {
namespace {

constexpr absl::string_view kGpuStates[] = {"up", "down"};
constexpr absl::string_view kStagingStates[] = {"used", "limit"};
constexpr absl::string_view kTensorStates[] = {"resident", "receiving"};

// The place in kLinks.
size_t LinkOf(TransportLink link) {
  return *FindLabel(kLinks, kTransportLinks[static_cast<size_t>(link)][1]);
}

class WorkerRecorder final : public WorkerMetrics {
 public:
  explicit WorkerRecorder(prometheus::Registry& registry)
      : registered_(registry, metric::kRegistered, kNoLabels, kNoLabels),
        reconnects_(registry, metric::kSessionReconnects, OneOf("reason", kReconnectReasons),
                    kNoLabels),
        rejections_(registry, metric::kCommandsRejected, OneOf("reason", kCommandRejections),
                    kNoLabels),
        bytes_(registry, metric::kTransferBytes, TransportLinkLabels(),
               OneOf("direction", kDirections)),
        relays_(registry, metric::kRelays, OneOf("kind", kRelayKinds),
                OneOf("result", kRelayResults)),
        relay_seconds_(registry, metric::kRelaySeconds, OneOf("transport", kTransports),
                       metric::kTransferBuckets),
        relay_throughput_(registry, metric::kRelayThroughput, OneOf("link", kLinks),
                          metric::kThroughputBuckets),
        relays_in_progress_(registry, metric::kRelaysInProgress, OneOf("transport", kTransports),
                            kNoLabels),
        phase_seconds_(registry, metric::kPhaseSeconds, OneOf("phase", kTransferPhases), kNoLabels),
        last_progress_(registry, metric::kLastProgress, kNoLabels, kNoLabels),
        stalls_(registry, metric::kChannelStalls, TransportLinkLabels(), kNoLabels),
        checksum_failures_(registry, metric::kChecksumFailures, TransportLinkLabels(), kNoLabels),
        gpus_(registry, metric::kGpus, OneOf("state", kGpuStates), kNoLabels),
        gpu_processes_lost_(registry, metric::kGpuProcessesLost, kNoLabels, kNoLabels),
        staging_(registry, metric::kStagingBytes, OneOf("state", kStagingStates), kNoLabels),
        tensors_(registry, metric::kTensorBytes, OneOf("state", kTensorStates), kNoLabels) {}

  void SetRegistered(bool registered) override { registered_.At(0).Set(registered ? 1 : 0); }
  void SessionReconnect(ReconnectReason reason) override {
    reconnects_.At(static_cast<size_t>(reason)).Increment();
  }
  void CommandRejected(CommandRejection reason) override {
    rejections_.At(static_cast<size_t>(reason)).Increment();
  }
  void Transferred(TransportLink link, int64_t sent_bytes, int64_t received_bytes) override {
    bytes_.At(static_cast<size_t>(link), 0).Increment(static_cast<double>(sent_bytes));
    bytes_.At(static_cast<size_t>(link), 1).Increment(static_cast<double>(received_bytes));
  }
  void RelayEnded(const RelayFacts& relay) override {
    relays_.At(static_cast<size_t>(relay.kind), static_cast<size_t>(relay.result)).Increment();
    if (relay.result != RelayResult::kSucceeded) return;
    const double seconds = absl::ToDoubleSeconds(relay.duration);
    relay_seconds_.At(static_cast<size_t>(TransportOf(relay.link))).Observe(seconds);
    if (seconds > 0) {
      relay_throughput_.At(LinkOf(relay.link)).Observe(static_cast<double>(relay.bytes) / seconds);
    }
  }
  void SetRelaysInProgress(TransportKind transport, int64_t relays) override {
    relays_in_progress_.At(static_cast<size_t>(transport)).Set(static_cast<double>(relays));
  }
  void PhaseTime(TransferPhase phase, absl::Duration duration) override {
    phase_seconds_.At(static_cast<size_t>(phase)).Increment(absl::ToDoubleSeconds(duration));
  }
  void SetLastProgress(absl::Time time) override {
    last_progress_.At(0).Set(absl::ToDoubleSeconds(time - absl::UnixEpoch()));
  }
  void ChannelStalled(TransportLink link) override {
    stalls_.At(static_cast<size_t>(link)).Increment();
  }
  void ChecksumFailed(TransportLink link) override {
    checksum_failures_.At(static_cast<size_t>(link)).Increment();
  }
  void SetStagingBytes(int64_t used, int64_t limit) override {
    staging_.At(0).Set(static_cast<double>(used));
    staging_.At(1).Set(static_cast<double>(limit));
  }
  void SetGpus(int64_t up, int64_t down) override {
    gpus_.At(0).Set(static_cast<double>(up));
    gpus_.At(1).Set(static_cast<double>(down));
  }
  void GpuProcessLost() override { gpu_processes_lost_.At(0).Increment(); }
  void SetTensorBytes(int64_t resident, int64_t receiving) override {
    tensors_.At(0).Set(static_cast<double>(resident));
    tensors_.At(1).Set(static_cast<double>(receiving));
  }

 private:
  Gauges registered_;
  Counters reconnects_;
  Counters rejections_;
  Counters bytes_;
  Counters relays_;
  Histograms relay_seconds_;
  Histograms relay_throughput_;
  Gauges relays_in_progress_;
  Counters phase_seconds_;
  Gauges last_progress_;
  Counters stalls_;
  Counters checksum_failures_;
  Gauges gpus_;
  Counters gpu_processes_lost_;
  Gauges staging_;
  Gauges tensors_;
};

}  // namespace

std::unique_ptr<WorkerMetrics> MakeWorkerMetrics(prometheus::Registry& registry) {
  return std::make_unique<WorkerRecorder>(registry);
}

}  // namespace crossmesh
