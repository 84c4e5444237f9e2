#pragma once

#include "planner/parallelism/transformer.h"

#include <cstdint>
#include <span>

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// A transformer that others have published results of.
struct PublishedModel {
  Transformer shape;
  // The least tensor degree that the authors of AxoNN give their ranking, in the place of a model
  // of memory; 0: not theirs.
  int64_t tensor_degree_least = 0;
};

// "GPT-5B" to "GPT-640B" of AxoNN's launch script, "22B", "175B", "530B" and "1T" of Megatron
// (arXiv 2205.05198). Their vocabulary is 51200.
std::span<const PublishedModel> PublishedModels();
// InvalidArgument, with the names that there are.
absl::StatusOr<PublishedModel> FindPublishedModel(absl::string_view name);

}  // namespace crossmesh
