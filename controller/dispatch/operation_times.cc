#include "controller/dispatch/operation_times.h"

#include <algorithm>

namespace crossmesh {

void OperationTimes::OnStarted(const std::string& worker) {
  const absl::Duration now = clock_.Monotonic();
  if (dispatched_ == absl::ZeroDuration()) dispatched_ = now;
  started_[worker] = now;
}

void OperationTimes::OnAccepted(const std::string& worker) {
  // A call that was made again repeats what it said.
  const auto started = started_.extract(worker);
  if (started.empty()) return;
  accepted_ = clock_.Monotonic();
  acceptance_times_.push_back(accepted_ - started.mapped());
}

void OperationTimes::WriteTo(v1::OperationReport& report) const {
  const absl::Duration now = clock_.Monotonic();
  report.set_total_seconds(absl::ToDoubleSeconds(now - begin_));
  if (!acceptance_times_.empty()) {
    report.set_dispatch_seconds(absl::ToDoubleSeconds(accepted_ - dispatched_));
    std::vector<absl::Duration> times = acceptance_times_;
    const auto middle = times.begin() + static_cast<int64_t>(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    report.set_first_byte_seconds(absl::ToDoubleSeconds(*middle));
  }
  if (verified_ == absl::ZeroDuration()) return;
  report.set_commit_seconds(absl::ToDoubleSeconds(now - verified_));
  // A worker may be done before the last one accepts.
  if (verified_ <= accepted_) return;
  const double transfer = absl::ToDoubleSeconds(verified_ - accepted_);
  report.set_transfer_seconds(transfer);
  report.set_throughput_bytes_per_second(static_cast<double>(report.destination_bytes()) /
                                         transfer);
  report.set_efficiency_ratio(report.bound_seconds() / transfer);
}

}  // namespace crossmesh
