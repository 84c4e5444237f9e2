#include "common/plan/m2n_proof.h"

#include "common/base/status_macros.h"
#include "common/plan/m2n_transfer.h"

#include <span>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status ProveTransfers(const TensorTable& tensors) {
  for (int32_t group = 0; group < std::ssize(tensors.groups()); ++group) {
    const absl::Status can = M2nTransferOf(tensors, group).status();
    if (!can.ok()) return absl::InternalError(can.message());
  }
  return absl::OkStatus();
}

// Of a plan or of a part.
template <class Copies>
absl::Status ProveNoCopies(const TensorTable& tensors, const Copies& copies) {
  if (copies.empty()) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("a plan for NCCL M2N: expected no copies, found one at ",
                                          ToString(tensors.devices()[copies.front().device])));
}

template <class AnyHop>
absl::Status ProveDirect(const TensorTable& tensors, int64_t relay, DeviceRank root,
                         std::span<const AnyHop> hops) {
  for (const AnyHop& hop : hops) {
    if (hop.from == root) continue;
    return absl::InternalError(absl::StrCat(
        "relay ", relay, " of a plan for NCCL M2N: expected hops from its root, ",
        ToString(tensors.devices()[root]), ", found one from ",
        ToString(tensors.devices()[hop.from]), " to ", ToString(tensors.devices()[hop.to])));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ProveM2n(const Plan& plan) {
  if (!plan.spec().m2n) return absl::OkStatus();
  RETURN_IF_ERROR(ProveTransfers(plan.tensors()));
  RETURN_IF_ERROR(ProveNoCopies(plan.tensors(), plan.copies()));
  for (int64_t r = 0; r < std::ssize(plan.relays()); ++r) {
    const Relay& relay = plan.relays()[r];
    RETURN_IF_ERROR(ProveDirect(plan.tensors(), r, relay.root, plan.hops(relay)));
  }
  return absl::OkStatus();
}

absl::Status ProveM2n(const WorkerPart& part) {
  const WorkerPart::Spec& spec = part.spec();
  if (!spec.m2n) return absl::OkStatus();
  RETURN_IF_ERROR(ProveTransfers(part.tensors()));
  RETURN_IF_ERROR(ProveNoCopies(part.tensors(), spec.copies));
  for (const WorkerPart::PartRelay& relay : spec.relays) {
    const auto hops =
        std::span<const WorkerPart::PartHop>(spec.hops).subspan(relay.first_hop, relay.hop_count);
    RETURN_IF_ERROR(ProveDirect(part.tensors(), relay.relay, relay.root, hops));
  }
  return absl::OkStatus();
}

}  // namespace crossmesh
