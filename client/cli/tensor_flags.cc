#include "client/cli/tensor_flags.h"

#include "client/cli/cli.h"
#include "client/planning/layout_rule_text.h"
#include "client/safetensors/collection.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/json_reader.h"
#include "common/mesh/manifest_file.h"
#include "common/wire/object_name.h"
#include "common/wire/tensor_codec.h"

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

// What `manifest show --json` prints, the API's JSON: unlike a manifest file it has its name as
// "name". Nothing for anything else.
absl::StatusOr<std::optional<Manifest>> ReadShownManifest(const std::string& path,
                                                          const std::string& text) {
  const absl::StatusOr<nlohmann::json> document = ParseJson(path, text);
  if (!document.ok() || !document->is_object() || !document->contains("name")) return std::nullopt;
  v1::Manifest proto;
  RETURN_IF_ERROR(FromJson(path, text, proto));
  return At(path, FromProto(proto));
}

}  // namespace

absl::StatusOr<Manifest> ReadManifest(const std::string& path) {
  std::error_code error;
  if (fs::is_directory(path, error) || absl::EndsWith(path, ".safetensors")) {
    ASSIGN_OR_RETURN(const SafetensorsCollection tensors, SafetensorsCollection::Open(path));
    return tensors.manifest();
  }
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  absl::StatusOr<ManifestFile> file = ParseManifestFile(text);
  if (file.ok()) return std::move(file->manifest);
  ASSIGN_OR_RETURN(std::optional<Manifest> shown, ReadShownManifest(path, text));
  if (shown.has_value()) return *std::move(shown);
  return At(path, file.status());
}

absl::StatusOr<std::vector<v1::LayoutRule>> ReadRules(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return At(path, SplitRules(text));
}

absl::StatusOr<v1::LayoutRule> RuleForAll(absl::string_view layout) {
  ASSIGN_OR_RETURN(const std::vector<v1::LayoutRule> rules, SplitRules(absl::StrCat("* ", layout)));
  if (rules.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout \"", layout, "\": expected one, found ", rules.size()));
  }
  return rules.front();
}

bool IsRegisteredName(absl::string_view text) { return CheckObjectName("name", text).ok(); }

}  // namespace crossmesh
