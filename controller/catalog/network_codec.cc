#include "controller/catalog/network_codec.h"

#include "common/base/status_macros.h"
#include "common/wire/tensor_codec.h"
#include "common/wire/time_codec.h"
#include "planner/parallelism/measured_axes.h"

#include <memory>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// Both have the same numbers.
static_assert(static_cast<int>(NetworkSource::kMeasured) == v1::NetworkSource_MAX);

v1::NetworkSource SourceToProto(NetworkSource source) {
  return static_cast<v1::NetworkSource>(source);
}

absl::StatusOr<NetworkSource> SourceFromProto(v1::NetworkSource proto) {
  if (v1::NetworkSource_IsValid(proto)) return static_cast<NetworkSource>(proto);
  return absl::InvalidArgumentError(
      absl::StrCat("network source: expected a number up to 3, found ", static_cast<int>(proto)));
}

}  // namespace

v1::Network ToProto(const NetworkDescription& description) {
  v1::Network proto;
  *proto.mutable_topology() = ToProto(description.topology);
  proto.set_revision(description.revision);
  proto.set_source(SourceToProto(description.source));
  if (description.revision > 0) *proto.mutable_update_time() = ToProto(description.time);
  if (description.axes != nullptr) *proto.mutable_axes() = ToProto(*description.axes);
  return proto;
}

absl::StatusOr<NetworkDescription> FromProto(const v1::Network& proto) {
  NetworkDescription description = {.revision = proto.revision()};
  ASSIGN_OR_RETURN(description.topology, FromProto(proto.topology()));
  ASSIGN_OR_RETURN(description.source, SourceFromProto(proto.source()));
  ASSIGN_OR_RETURN(description.time, FromProto(proto.update_time()));
  if (proto.has_axes()) {
    ASSIGN_OR_RETURN(MeasuredAxes axes, FromProto(proto.axes()));
    description.axes = std::make_shared<const MeasuredAxes>(std::move(axes));
  }
  return description;
}

}  // namespace crossmesh
