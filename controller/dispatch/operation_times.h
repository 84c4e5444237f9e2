#pragma once

#include "common/base/clock.h"
#include "crossmesh/v1/operation_service.pb.h"

#include <string>
#include <vector>

#include <absl/container/btree_map.h>
#include <absl/time/time.h>

namespace crossmesh {

// When things happened in an operation: what the times of its report are made of. Begins with its
// construction. Thread-compatible.
class OperationTimes {
 public:
  // `clock` must outlive it.
  explicit OperationTimes(const Clock& clock) : clock_(clock), begin_(clock.Monotonic()) {}

  absl::Duration elapsed() const { return clock_.Monotonic() - begin_; }

  // A worker was sent its task of the first attempt, and has accepted it.
  void OnStarted(const std::string& worker);
  void OnAccepted(const std::string& worker);
  // A destination device is verified.
  void OnVerified() { verified_ = clock_.Monotonic(); }

  // Fills in times, and the rates that follow from them with the report's bytes and bound.
  void WriteTo(v1::OperationReport& report) const;

 private:
  const Clock& clock_;
  const absl::Duration begin_;
  absl::btree_map<std::string, absl::Duration> started_;  // that have not accepted
  std::vector<absl::Duration> acceptance_times_;          // from start to acceptance
  absl::Duration dispatched_;                             // first start; zero before
  absl::Duration accepted_;                               // last acceptance
  absl::Duration verified_;                               // last device
};

}  // namespace crossmesh
