#include "worker/executor/laid_out_part.h"

#include "common/base/status_macros.h"
#include "worker/memory/memory_budget.h"

#include <set>
#include <utility>

namespace crossmesh {
namespace {

std::set<DeviceRank> DevicesThatAreRead(const PreparedPart& part) {
  std::set<DeviceRank> devices;
  for (const PreparedPart::Node& node : part.nodes()) {
    if (node.root) devices.insert(node.device);
  }
  for (const PreparedPart::Copy& copy : part.copies()) devices.insert(copy.device);
  if (!part.part().has_courses()) return devices;
  // Steps read all that there is.
  for (const DeviceRank device : part.part().spec().devices) {
    if (part.part().tensors().BytesOf(Side::kSource, device) > 0) devices.insert(device);
  }
  return devices;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LaidOutPart>> LaidOutPart::Create(
    std::shared_ptr<const WorkerPart> part) {
  auto laid_out = std::make_shared<LaidOutPart>();
  ASSIGN_OR_RETURN(laid_out->prepared, PreparedPart::Create(std::move(part)));
  const TensorTable& tensors = laid_out->prepared->part().tensors();
  for (const DeviceRank device : DevicesThatAreRead(*laid_out->prepared)) {
    laid_out->sources[device] = LayOut(tensors, Side::kSource, device);
  }
  for (const DeviceRank device : laid_out->prepared->destinations()) {
    laid_out->destinations[device] = LayOut(tensors, Side::kDestination, device);
  }
  return laid_out;
}

absl::StatusOr<std::shared_ptr<const LaidOutPart>> LaidOutPart::Admit(
    std::shared_ptr<const WorkerPart> part, const Admission& admission) {
  const ByteCount bytes(PreparedPart::BytesFor(*part, admission.runs));
  ASSIGN_OR_RETURN(MemoryBudget::Share share, admission.memory.Take(admission.name, bytes));
  ASSIGN_OR_RETURN(std::shared_ptr<const LaidOutPart> laid_out, Create(std::move(part)));
  return MemoryBudget::Bind(std::move(laid_out), std::move(share));
}

}  // namespace crossmesh
