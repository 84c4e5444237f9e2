#include "worker/probe/probe_table.h"

#include "common/base/log.h"
#include "common/base/status_macros.h"

#include <algorithm>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<ProbeTable>> ProbeTable::Create(Options options,
                                                               const Clock& clock) {
  ASSIGN_OR_RETURN(EventFd stop, EventFd::Create());
  return std::unique_ptr<ProbeTable>(new ProbeTable(std::move(options), clock, std::move(stop)));
}

absl::Status ProbeTable::Check(const std::string& interface, absl::Duration time) const {
  if (std::ranges::find(options_.interfaces, interface) == options_.interfaces.end()) {
    return absl::InvalidArgumentError(absl::StrCat("interface: expected one of ",
                                                   absl::StrJoin(options_.interfaces, ", "),
                                                   ", found \"", interface, "\""));
  }
  if (time < kProbeTimeMin || time > kProbeTimeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("time: expected ", absl::FormatDuration(kProbeTimeMin), " to ",
                     absl::FormatDuration(kProbeTimeMax), ", found ", absl::FormatDuration(time)));
  }
  return absl::OkStatus();
}

ProbePatience ProbeTable::PatienceFor(absl::Duration time) const {
  return {.clock = clock_, .end = clock_.Monotonic() + time + 2 * kProbeGrace, .stop = stop_};
}

absl::StatusOr<IpEndpoint> ProbeTable::Listen(const std::string& interface, const ProbeToken& token,
                                              absl::Duration time) {
  RETURN_IF_ERROR(Check(interface, time));
  ASSIGN_OR_RETURN(ProbeListener opened, ProbeListener::Open(interface, token));
  const IpEndpoint endpoint = opened.endpoint();
  // It has the time to hear of where to connect to as well.
  const ProbePatience patience = PatienceFor(time + kProbeGrace);
  RETURN_IF_ERROR(
      Start("probe-receive", [listener = std::move(opened), interface, patience]() mutable {
        const absl::StatusOr<ProbeReport> report = listener.Serve(patience);
        LogInfo("probe_received", {{"interface", interface},
                                   {"received_bytes", report.ok() ? report->received_bytes : 0},
                                   {"bytes_per_second", report.ok() ? report->bytes_per_second : 0},
                                   {"error", report.status().message()}});
      }));
  return endpoint;
}

void ProbeTable::Send(ProbeOrder order, Done done) {
  absl::Status status = Check(order.interface, order.time);
  if (status.ok() && (order.bytes < kProbeBytesMin || order.bytes > kProbeBytesMax)) {
    status =
        absl::InvalidArgumentError(absl::StrCat("bytes: expected ", int64_t{kProbeBytesMin}, " to ",
                                                int64_t{kProbeBytesMax}, ", found ", order.bytes));
  }
  // Shared with a thread that may never be made: then it is told here.
  const auto shared_done = std::make_shared<Done>(std::move(done));
  if (status.ok()) {
    const ProbePatience patience = PatienceFor(order.time);
    status = Start("probe-send", [order = std::move(order), patience, shared_done] {
      (*shared_done)(SendProbe(order, patience));
    });
  }
  if (!status.ok()) (*shared_done)(status);
}

absl::Status ProbeTable::Start(const std::string& name, absl::AnyInvocable<void()> body) {
  std::list<Probe> over;  // joined without the lock
  const MutexLock lock(mutex_);
  if (stopped_) return absl::UnavailableError("the worker stops");
  for (auto probe = probes_.begin(); probe != probes_.end();) {
    const auto next = std::next(probe);
    if (probe->over) over.splice(over.end(), probes_, probe);
    probe = next;
  }
  if (probes_.size() >= options_.probes_max) {
    return absl::ResourceExhaustedError(
        absl::StrCat("expected less than ", options_.probes_max, " probes at once"));
  }
  Probe& probe = probes_.emplace_back();
  probe.thread = Thread(name, [this, &probe, body = std::move(body)]() mutable {
    body();
    const MutexLock ended(mutex_);
    probe.over = true;
  });
  return absl::OkStatus();
}

void ProbeTable::Stop() {
  std::list<Probe> running;
  {
    const MutexLock lock(mutex_);
    stopped_ = true;
    running.swap(probes_);
  }
  stop_.Signal();
  // Without the lock, which a thread takes at its end.
  for (Probe& probe : running) probe.thread.Join();
}

}  // namespace crossmesh
