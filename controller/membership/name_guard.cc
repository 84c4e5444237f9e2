#include "controller/membership/name_guard.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_format.h>

namespace crossmesh {
namespace {

std::string ToText(const NameGuard::Process& process) {
  return absl::StrFormat("incarnation %d at %s", process.incarnation, process.address);
}

}  // namespace

absl::Status NameGuard::Admit(const std::string& name, const Process& process,
                              const std::optional<Process>& former, absl::Duration now) {
  const auto found = names_.find(name);
  if (found != names_.end() && found->second.evicted == process) {
    return absl::PermissionDeniedError(absl::StrCat("worker ", name, ": expected another process, ",
                                                    "found ", ToText(process),
                                                    ", which was evicted; start it again"));
  }
  const auto quarantined = [&]() -> absl::Status {
    const std::optional<std::string> why = WhyQuarantined(name, now);
    if (!why.has_value()) return absl::OkStatus();
    return absl::AlreadyExistsError(absl::StrCat("worker ", name, ": ", *why));
  };
  if (absl::Status status = quarantined(); !status.ok()) return status;
  if (!former.has_value() || former == process) return absl::OkStatus();
  Past& past = names_[name];
  if (past.replaced == process && now - past.replaced_at <= kTurn) {
    past.quarantined_until = now + kQuarantine;
    past.why = absl::StrCat("expected one process, found ", ToText(*former), " and ",
                            ToText(process), ", which take turns; end one of them");
  }
  past.replaced = former;
  past.replaced_at = now;
  return quarantined();
}

void NameGuard::Evicted(const std::string& name, const Process& process) {
  names_[name].evicted = process;
}

std::optional<std::string> NameGuard::WhyQuarantined(const std::string& name,
                                                     absl::Duration now) const {
  const auto found = names_.find(name);
  if (found == names_.end() || found->second.why.empty()) return std::nullopt;
  if (now >= found->second.quarantined_until) return std::nullopt;
  return found->second.why;
}

}  // namespace crossmesh
