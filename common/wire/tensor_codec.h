// Manifests, meshes, layout rules and networks between common's types and crossmesh.v1. For any
// bytes, the FromProto functions answer with a value that its type's own Create has
// accepted, or with InvalidArgument, which names the field or object.

#pragma once

#include "common/mesh/layout_rules.h"
#include "common/mesh/manifest.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology.h"
#include "crossmesh/v1/tensor.pb.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <google/protobuf/repeated_ptr_field.h>

namespace crossmesh {

v1::TensorSpec ToProto(const TensorSpec& tensor);
absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto);

// A manifest and a mesh have their name on the wire only; FromProto leaves it to the caller.
v1::Manifest ToProto(const Manifest& manifest, absl::string_view name = "");
absl::StatusOr<Manifest> FromProto(const v1::Manifest& proto);

v1::Mesh ToProto(const Mesh& mesh, absl::string_view name = "");
absl::StatusOr<Mesh> FromProto(const v1::Mesh& proto);

v1::Topology ToProto(const Topology& topology);
absl::StatusOr<Topology> FromProto(const v1::Topology& proto);

// The rules' "line" in errors is their place in the list, from 1.
absl::StatusOr<LayoutRules> FromProto(
    const google::protobuf::RepeatedPtrField<v1::LayoutRule>& proto);

}  // namespace crossmesh
