#include "planner/parallelism/layouts/stored_tensors.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr GridAxis kC = GridAxis::kC;
constexpr GridAxis kR = GridAxis::kR;

// One family's tensors, by what they are in a block.
class TensorList {
 public:
  explicit TensorList(WeightFamily family) : family_(family) {}

  // A matrix of k x n and its bias. Normal layers have k over c and n over r, transposed ones the
  // other way about. `parts`: of n.
  void AddLayer(const std::string& name, const BlockMatrix& matrix, int64_t parts = 1) {
    const StoredDimension k{.length = matrix.k, .axis = matrix.transposed ? kR : kC};
    const StoredDimension n{
        .length = matrix.n, .axis = matrix.transposed ? kC : kR, .parts = parts};
    Add({.pattern = absl::StrCat(name, ".weight"),
         .dimensions = Stored(k, n),
         .is_matrix = true,
         .of_experts = matrix.of_experts});
    if (!matrix.of_experts) Add({.pattern = absl::StrCat(name, ".bias"), .dimensions = {n}});
  }
  // A vector of `length` features that lie over c.
  void AddVector(std::string pattern, int64_t length, StoredPlace place = StoredPlace::kLayer) {
    Add({.pattern = std::move(pattern),
         .dimensions = {{.length = length, .axis = kC}},
         .place = place});
  }
  void Add(StoredTensor tensor) {
    tensor.pattern = absl::StrCat("*", tensor.pattern);
    tensors_.push_back(std::move(tensor));
  }
  std::vector<StoredTensor> Finish() && { return std::move(tensors_); }

 private:
  std::vector<StoredDimension> Stored(const StoredDimension& k, const StoredDimension& n) const {
    if (family_ == WeightFamily::kGpt2) return {k, n};
    return {n, k};
  }

  const WeightFamily family_;
  std::vector<StoredTensor> tensors_;
};

void AddEmbedding(const Transformer& model, std::string pattern, TensorList& list) {
  list.Add({.pattern = std::move(pattern),
            .dimensions = {{.length = model.vocabulary}, {.length = model.hidden, .axis = kC}},
            .place = StoredPlace::kFirstStage});
}

// [n, k], whatever the family: it is stored like an embedding.
void AddLogits(const Transformer& model, TensorList& list) {
  if (model.tied) return;
  list.Add({.pattern = "lm_head.weight",
            .dimensions = {{.length = model.vocabulary, .axis = kR},
                           {.length = model.hidden, .axis = kC}},
            .place = StoredPlace::kLastStage,
            .is_matrix = true});
}

void AddExperts(const Transformer& model, TensorList& list) {
  const BlockMatrix in{.k = model.hidden, .n = model.feed_forward, .of_experts = true};
  BlockMatrix out{.k = model.feed_forward, .n = model.hidden, .of_experts = true};
  out.transposed = true;
  for (const char* name : {"gate_proj", "up_proj", "w1", "w3"}) {
    list.AddLayer(absl::StrCat("layers.{l}.*.experts.{e}.", name), in);
  }
  for (const char* name : {"down_proj", "w2"}) {
    list.AddLayer(absl::StrCat("layers.{l}.*.experts.{e}.", name), out);
  }
  for (const char* block : {"mlp", "block_sparse_moe"}) {
    list.Add({.pattern = absl::StrCat("layers.{l}.", block, ".gate.weight"),
              .dimensions = {{.length = model.experts}, {.length = model.hidden, .axis = kC}}});
  }
}

void AddDenseMlp(const Transformer& model, TensorList& list) {
  const BlockMatrix in{.k = model.hidden, .n = model.feed_forward};
  const BlockMatrix out{.k = model.feed_forward, .n = model.hidden, .transposed = true};
  if (model.gated) list.AddLayer("layers.{l}.mlp.gate_proj", in);
  list.AddLayer("layers.{l}.mlp.up_proj", in);
  list.AddLayer("layers.{l}.mlp.down_proj", out);
}

std::vector<StoredTensor> LlamaTensors(const Transformer& model) {
  TensorList list(WeightFamily::kLlama);
  AddEmbedding(model, "embed_tokens.weight", list);
  const int64_t hidden = model.hidden;
  list.AddLayer("layers.{l}.self_attn.q_proj", {.k = hidden, .n = model.query_width()});
  list.AddLayer("layers.{l}.self_attn.k_proj", {.k = hidden, .n = model.kv_width()});
  list.AddLayer("layers.{l}.self_attn.v_proj", {.k = hidden, .n = model.kv_width()});
  list.AddLayer("layers.{l}.self_attn.o_proj",
                {.k = model.query_width(), .n = hidden, .transposed = true});
  for (const char* norm : {"q_norm", "k_norm"}) {  // of a head's width: every head has all of it
    list.Add({.pattern = absl::StrCat("layers.{l}.self_attn.", norm, ".weight"),
              .dimensions = {{.length = model.head_width}}});
  }
  if (model.experts > 0) {
    AddExperts(model, list);
  } else {
    AddDenseMlp(model, list);
  }
  list.AddVector("layers.{l}.input_layernorm.weight", hidden);
  list.AddVector("layers.{l}.post_attention_layernorm.weight", hidden);
  list.AddVector("model.norm.weight", hidden, StoredPlace::kLastStage);
  AddLogits(model, list);
  return std::move(list).Finish();
}

std::vector<StoredTensor> Gpt2Tensors(const Transformer& model) {
  TensorList list(WeightFamily::kGpt2);
  AddEmbedding(model, "wte.weight", list);
  list.Add({.pattern = "wpe.weight",
            .dimensions = {{}, {.length = model.hidden, .axis = kC}},
            .place = StoredPlace::kFirstStage});
  const int64_t hidden = model.hidden;
  list.AddLayer("h.{l}.attn.c_attn", {.k = hidden, .n = 3 * hidden}, 3);
  list.AddLayer("h.{l}.attn.c_proj", {.k = hidden, .n = hidden, .transposed = true});
  list.AddLayer("h.{l}.mlp.c_fc", {.k = hidden, .n = model.feed_forward});
  list.AddLayer("h.{l}.mlp.c_proj", {.k = model.feed_forward, .n = hidden, .transposed = true});
  for (const char* part : {"weight", "bias"}) {
    list.AddVector(absl::StrCat("h.{l}.ln_?.", part), hidden);
    list.AddVector(absl::StrCat("ln_f.", part), hidden, StoredPlace::kLastStage);
  }
  AddLogits(model, list);
  return std::move(list).Finish();
}

}  // namespace

std::vector<StoredTensor> StoredTensors(const Transformer& model, WeightFamily family) {
  return family == WeightFamily::kGpt2 ? Gpt2Tensors(model) : LlamaTensors(model);
}

}  // namespace crossmesh
