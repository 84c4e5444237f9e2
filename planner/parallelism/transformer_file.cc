#include "planner/parallelism/transformer_file.h"

#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"

#include <initializer_list>
#include <optional>
#include <string>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

using Names = std::initializer_list<absl::string_view>;

// A config has one of several names for the same size, by family.
class Config {
 public:
  Config(const nlohmann::json& object, std::string what)
      : object_(object), what_(std::move(what)) {}

  // Nothing where none of the names is there, or the first that is is null.
  absl::StatusOr<std::optional<int64_t>> Optional(Names names) const {
    for (const absl::string_view name : names) {
      const auto found = object_.find(std::string(name));
      if (found == object_.end()) continue;
      if (found->is_null()) return std::optional<int64_t>();
      if (!found->is_number_integer() || found->get<int64_t>() < 0) {
        return absl::InvalidArgumentError(absl::StrCat(
            what_, ": ", name, ": expected an integer of at least 0, found ", found->dump()));
      }
      return std::optional<int64_t>(found->get<int64_t>());
    }
    return std::optional<int64_t>();
  }

  absl::StatusOr<int64_t> Size(Names names) const {
    ASSIGN_OR_RETURN(const std::optional<int64_t> size, Optional(names));
    if (size) return *size;
    return absl::InvalidArgumentError(
        absl::StrCat(what_, ": expected the key ", absl::StrJoin(names, " or "), ", found none"));
  }

  bool Flag(const std::string& name, bool otherwise) const {
    const auto found = object_.find(name);
    return found != object_.end() && found->is_boolean() ? found->get<bool>() : otherwise;
  }
  std::string Text(Names names) const {
    for (const absl::string_view name : names) {
      const auto found = object_.find(std::string(name));
      if (found != object_.end() && found->is_string()) return found->get<std::string>();
    }
    return "";
  }

 private:
  const nlohmann::json& object_;
  const std::string what_;
};

// GPT-2 and GPT-NeoX have one matrix into the inner width, whatever newer models name their
// activation function.
bool IsGated(const Config& config) {
  const std::string type = config.Text({"model_type"});
  for (const absl::string_view plain : {"gpt2", "gpt_neo", "gpt_neox", "gptj", "opt", "bloom",
                                        "falcon", "phi", "starcoder2", "gpt_bigcode"}) {
    if (type == plain) return false;
  }
  const std::string activation = config.Text({"hidden_act", "hidden_activation", "activation"});
  return absl::StrContains(activation, "silu") || absl::StrContains(activation, "swiglu") ||
         absl::StartsWith(type, "gemma");
}

absl::Status ReadExperts(const Config& config, Transformer& model) {
  ASSIGN_OR_RETURN(const std::optional<int64_t> experts,
                   config.Optional({"num_local_experts", "num_experts", "n_routed_experts"}));
  if (experts.value_or(0) == 0) return absl::OkStatus();
  model.experts = *experts;
  ASSIGN_OR_RETURN(model.experts_per_token,
                   config.Size({"num_experts_per_tok", "num_experts_per_token", "moe_topk"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> inner, config.Optional({"moe_intermediate_size"}));
  if (inner) model.feed_forward = *inner;
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Transformer> ParseTransformerFile(absl::string_view what, absl::string_view text) {
  ASSIGN_OR_RETURN(const nlohmann::json document, ParseJson(what, text));
  if (!document.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": expected an object, found ", document.type_name()));
  }
  // Models of several media have their text model inside.
  const auto inside = document.find("text_config");
  const bool nested = inside != document.end() && inside->is_object();
  const Config config(nested ? *inside : document, std::string(what));
  Transformer model;
  model.name = config.Text({"_name_or_path", "model_type"});
  if (model.name.empty()) model.name = std::string(what);
  ASSIGN_OR_RETURN(model.layers, config.Size({"num_hidden_layers", "n_layer", "num_layers"}));
  ASSIGN_OR_RETURN(model.hidden, config.Size({"hidden_size", "n_embd", "d_model"}));
  ASSIGN_OR_RETURN(model.heads, config.Size({"num_attention_heads", "n_head"}));
  ASSIGN_OR_RETURN(const std::optional<int64_t> kv_heads, config.Optional({"num_key_value_heads"}));
  model.kv_heads = kv_heads.value_or(model.heads);
  ASSIGN_OR_RETURN(const std::optional<int64_t> head_width, config.Optional({"head_dim"}));
  model.head_width = head_width.value_or(model.heads == 0 ? 0 : model.hidden / model.heads);
  ASSIGN_OR_RETURN(const std::optional<int64_t> inner,
                   config.Optional({"intermediate_size", "n_inner", "ffn_dim"}));
  model.feed_forward = inner.value_or(4 * model.hidden);
  ASSIGN_OR_RETURN(model.vocabulary, config.Size({"vocab_size"}));
  model.gated = IsGated(config);
  // GPT-2 ties them without saying so.
  model.tied = config.Flag("tie_word_embeddings", config.Text({"model_type"}) == "gpt2");
  RETURN_IF_ERROR(ReadExperts(config, model));
  RETURN_IF_ERROR(Validate(model));
  return model;
}

}  // namespace crossmesh
