#include "planner/parallelism/transformer_file.h"

#include "common/testing/status_matchers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace crossmesh {
namespace {

using ::testing::HasSubstr;

TEST(TransformerFileTest, LlamasConfigHasItsSizes) {
  ASSERT_OK_AND_ASSIGN(const Transformer model, ParseTransformerFile("config.json", R"({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
      "hidden_size": 8192, "intermediate_size": 28672, "num_attention_heads": 64,
      "num_hidden_layers": 80, "num_key_value_heads": 8, "vocab_size": 128256,
      "rope_theta": 500000.0, "tie_word_embeddings": false})"));
  EXPECT_EQ(model.layers, 80);
  EXPECT_EQ(model.head_width, 128);
  EXPECT_EQ(model.kv_width(), 1024);
  EXPECT_TRUE(model.gated);
  EXPECT_FALSE(model.tied);
  // The published count, without norms: 70.55 billion.
  EXPECT_EQ(Parameters(model), 70'552'387'584);
}

TEST(TransformerFileTest, GptTwoHasTiedWeightsAndOneMatrixIn) {
  ASSERT_OK_AND_ASSIGN(const Transformer model, ParseTransformerFile("config.json", R"({
      "model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768, "n_head": 12,
      "n_layer": 12, "n_inner": null, "vocab_size": 50257})"));
  EXPECT_EQ(model.feed_forward, 3072);
  EXPECT_EQ(model.kv_heads, 12);
  EXPECT_FALSE(model.gated);
  EXPECT_EQ(Parameters(model), 12LL * 12 * 768 * 768 + 50257 * 768);
}

TEST(TransformerFileTest, MixturesHaveTheirExperts) {
  ASSERT_OK_AND_ASSIGN(const Transformer model, ParseTransformerFile("config.json", R"({
      "model_type": "mixtral", "hidden_act": "silu", "hidden_size": 4096,
      "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32,
      "num_key_value_heads": 8, "num_local_experts": 8, "num_experts_per_tok": 2,
      "vocab_size": 32000, "tie_word_embeddings": false})"));
  EXPECT_EQ(model.experts, 8);
  EXPECT_EQ(model.experts_per_token, 2);
  // 46.7 billion, published.
  EXPECT_NEAR(static_cast<double>(Parameters(model)), 46.7e9, 0.05e9);
  ASSERT_OK_AND_ASSIGN(const Transformer inside, ParseTransformerFile("config.json", R"({
      "model_type": "some_vlm", "text_config": {"hidden_act": "silu", "hidden_size": 2048,
      "intermediate_size": 6144, "moe_intermediate_size": 768, "num_attention_heads": 32,
      "head_dim": 128, "num_hidden_layers": 48, "num_key_value_heads": 4, "num_experts": 128,
      "num_experts_per_tok": 8, "vocab_size": 151936}})"));
  EXPECT_EQ(inside.feed_forward, 768);
  EXPECT_EQ(inside.query_width(), 4096);
}

TEST(TransformerFileTest, WhatIsMissingOrWrongIsNamed) {
  const struct {
    const char* text;
    const char* error;
  } mistakes[] = {
      {"{", "config.json"},
      {"[]", "config.json: expected an object, found array"},
      {"{}", "config.json: expected the key num_hidden_layers or n_layer or num_layers"},
      {R"({"n_layer": -1})", "n_layer: expected an integer of at least 0, found -1"},
      {R"({"n_layer": 2.5})", "found 2.5"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 0, "vocab_size": 8})", "heads: expected 1 to"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 3, "num_key_value_heads": 2, "vocab_size": 8})",
       "heads: expected a multiple of the 2 heads of keys and values, found 3"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 8, "num_experts": 4})",
       "expected the key num_experts_per_tok"},
      {R"({"n_layer": 2, "n_embd": 8, "n_head": 2, "vocab_size": 8, "num_experts": 4,
           "num_experts_per_tok": 5})",
       "experts_per_token: expected at most 4, found 5"}};
  for (const auto& [text, error] : mistakes) {
    EXPECT_THAT(ParseTransformerFile("config.json", text),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(error)))
        << text;
  }
}

}  // namespace
}  // namespace crossmesh
