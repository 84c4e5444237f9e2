#pragma once

#include "planner/parallelism/transformer.h"

#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// Reads the sizes of a transformer from a Hugging Face config.json: keys of Llama, Mistral, Qwen,
// Mixtral, Qwen-MoE, GPT-2, GPT-NeoX and their like. Other keys are passed over, so that files are
// read as they are. InvalidArgument, naming `what` and the key: malformed JSON, a size that is
// missing or no positive integer, and what Validate refuses.
absl::StatusOr<Transformer> ParseTransformerFile(absl::string_view what, absl::string_view text);

}  // namespace crossmesh
