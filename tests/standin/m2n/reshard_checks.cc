#include "tests/standin/m2n/reshard_checks.h"

#include "tests/standin/control/stand_in_control.h"
#include "tests/standin/m2n/reshard_messages.h"

#include <climits>
#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {
namespace {

// As reshard_limits.h and the default of NCCL_RESHARD_PACK_BUFFSIZES of ncclReshard have them.
constexpr int kSourcePartsMax = 16;
constexpr int kDestinationPartsMax = 64;
constexpr size_t kTileBytesMax = size_t{1} << 31;

Result Refused(absl::string_view side, absl::string_view text) {
  return Violation(ncclInvalidArgument, absl::StrCat(side, ": ", text));
}

size_t BytesOf(ncclDataType_t type) {
  switch (static_cast<int>(type)) {
    case ncclInt8:
    case ncclUint8:
    case ncclFloat8e4m3:
    case ncclFloat8e5m2:
      return 1;
    case ncclFloat16:
    case ncclBfloat16:
      return 2;
    case ncclInt32:
    case ncclUint32:
    case ncclFloat32:
      return 4;
    case ncclInt64:
    case ncclUint64:
    case ncclFloat64:
      return 8;
    default:
      return 0;
  }
}

Result CheckMesh(absl::string_view side, const ncclMesh_t* mesh, int ranks) {
  if (mesh == nullptr || mesh->size != sizeof(ncclMesh_t) || mesh->version != kM2nApiVersion) {
    return Refused(side, "no mesh, or one of another version");
  }
  if (mesh->ndims < 1 || mesh->ndims > 2 || mesh->dims == nullptr) {
    return Refused(side, absl::StrCat("a mesh of ", mesh->ndims, " axes"));
  }
  int64_t size = 1;
  for (int axis = 0; axis < mesh->ndims; ++axis) {
    if (mesh->dims[axis] <= 0) return Refused(side, "an axis without ranks");
    size *= mesh->dims[axis];
  }
  if (mesh->startRank < 0 || size > ranks - mesh->startRank) {
    return Refused(side, absl::StrCat("ranks [", mesh->startRank, ", ", mesh->startRank + size,
                                      ") of ", ranks));
  }
  return {};
}

Result CheckPlacements(absl::string_view side, const ncclDistTensor_t& tensor) {
  int cuts = 0;
  for (int axis = 0; axis < tensor.mesh->ndims; ++axis) {
    const int placement = tensor.placements[axis];
    if (placement == -1) continue;
    if (placement < 0 || placement >= tensor.ndims) {
      return Refused(side,
                     absl::StrCat("placement ", placement, " of ", tensor.ndims, " dimensions"));
    }
    ++cuts;
  }
  return cuts <= 1 ? Result{} : Refused(side, "more than one axis that cuts");
}

Result CheckTensor(absl::string_view side, const ncclDistTensor_t* tensor, int rank, int ranks) {
  if (tensor == nullptr || tensor->size != sizeof(ncclDistTensor_t) ||
      tensor->version != kM2nApiVersion) {
    return Refused(side, "no tensor, or one of another version");
  }
  RETURN_IF_FAILED(CheckMesh(side, tensor->mesh, ranks));
  if (tensor->ndims < 1 || tensor->ndims > 3 || tensor->localShape == nullptr ||
      tensor->placements == nullptr) {
    return Refused(side, absl::StrCat("a tensor of ", tensor->ndims, " dimensions, or no shape"));
  }
  if (BytesOf(tensor->dtype) == 0) return Refused(side, absl::StrCat("type ", tensor->dtype));
  RETURN_IF_FAILED(CheckPlacements(side, *tensor));
  size_t bytes = BytesOf(tensor->dtype);
  for (int d = 0; d < tensor->ndims; ++d) bytes *= tensor->localShape[d];
  if (bytes == 0 || bytes > kTileBytesMax) {
    return Refused(side, absl::StrCat("a tile of ", bytes, " bytes"));
  }
  const int place = rank - tensor->mesh->startRank;
  const bool is_there = place >= 0 && place < RecordSide(*tensor).ranks;
  if (!is_there) return {};
  if (crossmeshStandInMemoryKind(tensor->dataPtr, bytes) == kStandInNoMemory) {
    return Refused(side, absl::StrCat("a tile of ", bytes, " bytes that is not all device memory"));
  }
  return {};
}

Result CheckTogether(const RecordedSide& source, const RecordedSide& destination, int ranks) {
  for (int d = 0; d < 3; ++d) {
    if (source.length(d) == destination.length(d)) continue;
    return Violation(ncclInvalidArgument,
                     absl::StrCat("dimension ", d, " has length ", source.length(d), " and ",
                                  destination.length(d)));
  }
  // Of a communicator of one rank it copies inside that.
  const bool is_disjoint = ranks == 1 ||
                           source.first_rank + source.ranks <= destination.first_rank ||
                           destination.first_rank + destination.ranks <= source.first_rank;
  if (!is_disjoint) return Violation(ncclInvalidArgument, "meshes that share ranks");
  const int sources = PartsMet(destination, source), destinations = PartsMet(source, destination);
  if (sources <= kSourcePartsMax && destinations <= kDestinationPartsMax) return {};
  return Violation(ncclInvalidArgument,
                   absl::StrCat("a part that meets ", sources, " of the source, or one that meets ",
                                destinations, " of the destination"));
}

}  // namespace

Result CheckReshard(const ReshardCall& call, RecordedReshard& recorded) {
  const int ranks = crossmeshStandInCommunicatorSize(call.communicator);
  const int rank = crossmeshStandInCommunicatorRank(call.communicator);
  if (ranks <= 0) return Violation(ncclInvalidArgument, "no communicator that is ready");
  if (crossmeshStandInStreamDevice(call.stream) != crossmeshStandInCurrentDevice()) {
    return Violation(ncclInvalidArgument,
                     "a stream that is a default stream, not there, or of another device than the "
                     "thread has");
  }
  RETURN_IF_FAILED(CheckTensor("source", call.source, rank, ranks));
  RETURN_IF_FAILED(CheckTensor("destination", call.destination, rank, ranks));
  if (call.source->ndims != call.destination->ndims ||
      call.source->dtype != call.destination->dtype) {
    return Violation(ncclInvalidArgument, "sides of other types or numbers of dimensions");
  }
  recorded = {.communicator = call.communicator,
              .stream = call.stream,
              .source = RecordSide(*call.source),
              .destination = RecordSide(*call.destination),
              .item_bytes = BytesOf(call.source->dtype)};
  return CheckTogether(recorded.source, recorded.destination, ranks);
}

}  // namespace crossmesh
