#pragma once

#include "common/mesh/device.h"
#include "common/mesh/mesh.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/transformer.h"

#include <cstdint>
#include <span>
#include <string>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// How the files of a family name and store a model's parameters.
enum class WeightFamily : uint8_t {
  kLlama,  // Llama, Mistral, Qwen, Mixtral and their like: a matrix of k x n is stored as [n, k]
  kGpt2,   // GPT-2: stored as [k, n], queries, keys and values as one matrix
};
// "llama", "gpt2".
absl::string_view WeightFamilyName(WeightFamily family);
// InvalidArgument, with those that there are.
absl::StatusOr<WeightFamily> ParseWeightFamily(absl::string_view name);

// The mesh of all devices of a grid, in the order c, r, z, context, expert, pipeline, data: the
// axes of more than one, c last. InvalidArgument: another count of devices; what Mesh::Create
// finds.
absl::StatusOr<Mesh> WeightMesh(const Grid& grid, std::span<const DeviceId> devices);

// How the parameters of a model lie on a grid, and by the same names, with anything before them,
// gradients and moments: rules for WeightMesh (docs/text-forms.md), a line for each kind of tensor.
// Of a matrix's block, cut by c and r, z cuts the elements as they are stored, in a row: whole rows
// where it divides these, else tiles of up to three boxes for every slot. Vectors lie as the
// features that they belong to, or on the diagonal as VectorForm says; what no axis cuts is copied.
// Embedding and logits are on the
// first and on the last stage; experts, where there are some, on their coordinates.
//
// InvalidArgument, naming the tensor: a width that its axes do not divide; layers that the stages
// do not; experts that their axis does not; what CheckDiagonal finds; more than 65,536 boxes in
// all.
absl::StatusOr<std::string> RulesOfGrid(const Transformer& model, const Grid& grid,
                                        WeightFamily family,
                                        VectorForm vectors = VectorForm::kReplicated);

}  // namespace crossmesh
