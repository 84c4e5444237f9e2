#include "worker/service/tasks/laid_out_part.h"

#include "common/base/status_macros.h"
#include "common/wire/worker_part_codec.h"
#include "crossmesh/v1/execution_service.pb.h"

#include <set>
#include <string>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::set<DeviceRank> DevicesThatAreRead(const PreparedPart& part) {
  std::set<DeviceRank> devices;
  for (const PreparedPart::Node& node : part.nodes()) {
    if (node.root) devices.insert(node.device);
  }
  for (const PreparedPart::Copy& copy : part.copies()) devices.insert(copy.device);
  return devices;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const LaidOutPart>> LaidOutPart::Parse(absl::string_view bytes,
                                                                      const Digest& expected) {
  v1::WorkerPart proto;
  if (!proto.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    return absl::InvalidArgumentError(
        absl::StrCat("part ", expected.ToString(), ": ", bytes.size(), " bytes are no WorkerPart"));
  }
  ASSIGN_OR_RETURN(WorkerPart part, FromProto(proto));
  if (part.digest() != expected) {
    return absl::InvalidArgumentError(absl::StrCat(
        "part: expected the digest ", expected.ToString(), ", found ", part.digest().ToString()));
  }
  return Create(std::make_shared<const WorkerPart>(std::move(part)));
}

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

}  // namespace crossmesh
