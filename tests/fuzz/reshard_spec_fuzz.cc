// The text of a reshard's specification, as the command line reads it, decoded as the controller
// does: what it says of tensors, meshes, rules and network survives the wire, and the table built
// of them holds only layouts that fit.

#include "common/base/check.h"
#include "common/reshard/reshard_tensors.h"
#include "common/wire/plan_codec.h"
#include "common/wire/tensor_codec.h"
#include "crossmesh/v1/reshard.pb.h"
#include "tests/fuzz/fuzz_input.h"

#include <string>
#include <vector>

#include <google/protobuf/stubs/logging.h>
#include <google/protobuf/util/json_util.h>

namespace crossmesh {
namespace {

// A short text can stand for meshes of many slots, of which every tensor needs a look.
constexpr int64_t kSlotsMax = 256;

template <typename T>
void CheckSurvives(const absl::StatusOr<T>& value) {
  if (!value.ok()) return;
  const absl::StatusOr<T> again = FromProto(ToProto(*value));
  CHECK_OK(again);
  CHECK(*again == *value);
}

void CheckTable(const TensorTable& table) {
  for (const TensorGroup& group : table.groups()) {
    const Placement& source = table.placements(Side::kSource)[group.source];
    const Placement& destination = table.placements(Side::kDestination)[group.destination];
    CHECK_OK(source.layout.Validate(source.mesh, group.shape));
    CHECK_OK(destination.layout.Validate(destination.mesh, group.shape));
  }
}

void CheckSpec(const v1::ReshardSpec& spec) {
  const auto manifest = FromProto(spec.inline_manifest());
  const auto source_mesh = FromProto(spec.source().inline_mesh());
  const auto destination_mesh = FromProto(spec.destination().inline_mesh());
  CheckSurvives(manifest);
  CheckSurvives(source_mesh);
  CheckSurvives(destination_mesh);
  CheckSurvives(FromProto(spec.topology()));
  if (const auto mode = FromProto(spec.binding()); mode.ok()) {
    CHECK(FromProto(ToProto(*mode)).value() == *mode);
  }
  const auto source_rules = FromProto(spec.source().rules());
  const auto destination_rules = FromProto(spec.destination().rules());
  if (!manifest.ok() || !source_mesh.ok() || !destination_mesh.ok() || !source_rules.ok() ||
      !destination_rules.ok() || source_mesh->slots() > kSlotsMax ||
      destination_mesh->slots() > kSlotsMax) {
    return;
  }
  const auto table = BuildReshardTensors(*manifest, {*source_mesh, *source_rules},
                                         {*destination_mesh, *destination_rules},
                                         {spec.replica_axes().begin(), spec.replica_axes().end()});
  if (table.ok()) CheckTable(*table);
}

}  // namespace

void FuzzOne(const uint8_t* data, size_t size) {
  static const google::protobuf::LogSilencer quiet;
  v1::ReshardSpec spec;
  const std::string text(TextOf(data, size));
  if (google::protobuf::util::JsonStringToMessage(text, &spec).ok()) CheckSpec(spec);
}

}  // namespace crossmesh
