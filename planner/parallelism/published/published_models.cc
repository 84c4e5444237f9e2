#include "planner/parallelism/published/published_models.h"

#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {
namespace {

constexpr int64_t kVocabulary = 51200;

PublishedModel ModelOf(std::string name, int64_t layers, int64_t hidden, int64_t heads) {
  PublishedModel model{.shape = PlainTransformer(std::move(name), layers, hidden, heads)};
  model.shape.vocabulary = kVocabulary;
  return model;
}

const std::vector<PublishedModel>& Models() {
  static const auto& models = *new std::vector<PublishedModel>([] {
    std::vector<PublishedModel> all;
    const struct {
      const char* name;
      int64_t layers, hidden, heads, least;
    } axonn[] = {{"GPT-5B", 24, 4096, 32, 4},       {"GPT-10B", 32, 5120, 40, 8},
                 {"GPT-20B", 32, 7168, 56, 16},     {"GPT-40B", 38, 9216, 72, 32},
                 {"GPT-60B", 56, 9216, 72, 64},     {"GPT-80B", 42, 12288, 96, 64},
                 {"GPT-160B", 84, 12288, 96, 128},  {"GPT-320B", 96, 16384, 128, 256},
                 {"GPT-640B", 192, 16384, 128, 512}};
    for (const auto& [name, layers, hidden, heads, least] : axonn) {
      all.push_back(ModelOf(name, layers, hidden, heads));
      all.back().tensor_degree_least = least;
    }
    all.push_back(ModelOf("22B", 48, 6144, 64));
    all.push_back(ModelOf("175B", 96, 12288, 96));
    all.push_back(ModelOf("530B", 105, 20480, 128));
    all.push_back(ModelOf("1T", 128, 25600, 160));
    return all;
  }());
  return models;
}

}  // namespace

std::span<const PublishedModel> PublishedModels() { return Models(); }

absl::StatusOr<PublishedModel> FindPublishedModel(absl::string_view name) {
  std::vector<std::string> names;
  for (const PublishedModel& model : Models()) {
    if (model.shape.name == name) return model;
    names.push_back(model.shape.name);
  }
  return absl::InvalidArgumentError(absl::StrCat("model: expected a config.json, or one of ",
                                                 absl::StrJoin(names, ", "), ", found \"", name,
                                                 "\""));
}

}  // namespace crossmesh
