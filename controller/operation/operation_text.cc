// Text of events and actions: scripts and logs.

#include "controller/operation/operation_machine.h"

#include <set>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string StatusText(const absl::Status& status) {
  if (status.ok()) return "OK";
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ", status.message());
}

std::string Text(const WorkerShare& share) {
  return absl::StrCat(share.worker, "{",
                      absl::StrJoin(share.replica_of_device, " ",
                                    [](std::string* out, const auto& entry) {
                                      absl::StrAppend(out, entry.first, ":", entry.second);
                                    }),
                      "}");
}

struct EventText {
  std::string operator()(const Planned& e) const {
    return absl::StrCat("Planned ",
                        absl::StrJoin(e.shares, " ", [](std::string* out, const auto& s) {
                          absl::StrAppend(out, Text(s));
                        }));
  }
  std::string operator()(const PlanFailed& e) const {
    return absl::StrCat("PlanFailed ", StatusText(e.status));
  }
  std::string operator()(const IntentCommitted&) const { return "IntentCommitted"; }
  std::string operator()(const IntentFailed& e) const {
    return absl::StrCat("IntentFailed ", StatusText(e.status));
  }
  std::string operator()(const TaskAccepted& e) const {
    return absl::StrCat("TaskAccepted ", e.worker);
  }
  std::string operator()(const DeviceDone& e) const {
    return absl::StrCat("DeviceDone ", e.worker, " ", e.device, " ", StatusText(e.status));
  }
  std::string operator()(const TaskEnded& e) const {
    return absl::StrCat("TaskEnded ", e.worker, " ", StatusText(e.status),
                        e.lost_peers.empty() ? "" : " lost ", absl::StrJoin(e.lost_peers, " "));
  }
  std::string operator()(const DevicesResolved& e) const {
    return absl::StrCat("DevicesResolved ", e.worker, " ", absl::StrJoin(e.devices, ","), " ",
                        StatusText(e.status));
  }
  std::string operator()(const WorkerLost& e) const {
    return absl::StrCat("WorkerLost ", e.worker, " ", StatusText(e.status));
  }
  std::string operator()(const CancelRequested& e) const {
    return absl::StrCat("CancelRequested ", e.reason);
  }
  std::string operator()(const DeadlinePassed&) const { return "DeadlinePassed"; }
};

struct ActionText {
  std::string operator()(const CommitIntent&) const { return "CommitIntent"; }
  std::string operator()(const StartTask& a) const {
    return absl::StrCat("StartTask ", a.worker, " attempt ", a.attempt);
  }
  std::string operator()(const CancelTask& a) const {
    return absl::StrCat("CancelTask ", a.worker, " attempt ", a.attempt, ": ", a.reason);
  }
  std::string operator()(const ResolveDevices& a) const {
    return absl::StrCat(a.commit ? "Commit " : "Abandon ", a.worker, " ",
                        absl::StrJoin(a.devices, ","), " attempt ", a.attempt);
  }
  std::string operator()(const TellPeerLost& a) const {
    return absl::StrCat("TellPeerLost ", a.worker, " of ", a.lost, ": ", a.reason);
  }
  std::string operator()(const PlanAgain& a) const {
    return absl::StrCat("PlanAgain attempt ", a.attempt, " replicas ",
                        absl::StrJoin(a.replicas, ","), " without ", absl::StrJoin(a.without, ","));
  }
  std::string operator()(const AcknowledgeTask& a) const {
    return absl::StrCat("AcknowledgeTask ", a.worker, " attempt ", a.attempt);
  }
  std::string operator()(const PublishChange&) const { return "PublishChange"; }
  std::string operator()(const FinishOperation&) const { return "FinishOperation"; }
};

}  // namespace

std::string ToString(const OperationEvent& event) { return std::visit(EventText{}, event); }
std::string ToString(const OperationAction& action) { return std::visit(ActionText{}, action); }

}  // namespace crossmesh
