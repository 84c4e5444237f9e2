// Text of events and actions: scripts and logs.

#include "controller/communicators/communicator_registry.h"

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

std::string StatusText(const absl::Status& status) {
  return absl::StrCat(absl::StatusCodeToString(status.code()), " ", status.message());
}

struct EventText {
  std::string operator()(const CommunicatorWanted& e) const {
    return absl::StrCat("CommunicatorWanted ", e.user, " ", e.key.ToString());
  }
  std::string operator()(const CommunicatorReleased& e) const {
    return absl::StrCat("CommunicatorReleased ", e.user, " ", e.key.ToString());
  }
  std::string operator()(const PreflightsCollected& e) const {
    return absl::StrCat("PreflightsCollected ", e.key.ToString());
  }
  std::string operator()(const IdMinted& e) const {
    return absl::StrCat("IdMinted ", e.key.ToString());
  }
  std::string operator()(const RankReady& e) const {
    return absl::StrCat("RankReady ", e.key.ToString(), " ", e.rank.ToString(), " ", e.bytes);
  }
  std::string operator()(const RankFailed& e) const {
    return absl::StrCat("RankFailed ", e.key.ToString(), " ", e.rank.ToString(), " ",
                        StatusText(e.status));
  }
  std::string operator()(const RankGone& e) const {
    return absl::StrCat("RankGone ", e.key.ToString(), " ", e.rank.ToString());
  }
  std::string operator()(const ProcessLost& e) const {
    return absl::StrCat("ProcessLost ", e.rank.ToString(), " ", StatusText(e.status));
  }
};

struct ActionText {
  std::string operator()(const CollectPreflights& a) const {
    return absl::StrCat("CollectPreflights ", a.key.ToString());
  }
  std::string operator()(const MintId& a) const {
    return absl::StrCat("MintId ", a.key.ToString());
  }
  std::string operator()(const CreateCommunicator& a) const {
    return absl::StrCat("CreateCommunicator ", a.key.ToString(), " ticket ", a.ticket);
  }
  std::string operator()(const DestroyCommunicator& a) const {
    return absl::StrCat("DestroyCommunicator ", a.key.ToString(), " ticket ", a.ticket);
  }
  std::string operator()(const StopCommunicator& a) const {
    return absl::StrCat("StopCommunicator ", a.key.ToString(), " at ",
                        absl::StrJoin(a.ranks, ",",
                                      [](std::string* out, const RankName& rank) {
                                        absl::StrAppend(out, rank.ToString());
                                      }),
                        ": ", a.cause.message());
  }
  std::string operator()(const GrantLease& a) const {
    return absl::StrCat("GrantLease ", a.user, " ", a.key.ToString());
  }
  std::string operator()(const EndLease& a) const {
    return absl::StrCat("EndLease ", a.user, " ", a.key.ToString(), ": ", StatusText(a.cause));
  }
};

}  // namespace

std::string ToString(const CommunicatorEvent& event) { return std::visit(EventText{}, event); }
std::string ToString(const CommunicatorAction& action) { return std::visit(ActionText{}, action); }

}  // namespace crossmesh
