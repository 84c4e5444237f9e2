#include "tests/reliability/load_cases.h"

#include "common/base/check.h"

#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

ReshardOptions BetweenStoragesOf(const std::string& load, Manifest manifest) {
  return {.manifest = std::move(manifest),
          .source_storage = absl::StrCat(load, "-from"),
          .destination_storage = absl::StrCat(load, "-to")};
}

ReshardOptions SumsOf(const std::string& load, int64_t rows) {
  absl::StatusOr<Manifest> manifest =
      Manifest::Create({{.name = "m", .shape = Shape::Create({{rows, 1024}}).value()}});
  CHECK_OK(manifest.status());
  ReshardOptions options = BetweenStoragesOf(load, *std::move(manifest));
  options.source = options.destination = "x=3 on node-0.0,node-1.0,node-2.0";
  options.source_layout = "[-, -]";
  options.destination_layout = "[x, -]";
  options.replica_axes = {};
  options.source_partial = {"x"};
  return options;
}

}  // namespace crossmesh
