#include "tests/reliability/metadata_load.h"

#include "tests/reliability/load_client.h"

#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {

MetadataLoad::MetadataLoad(const LoadEnvironment& environment, std::string prefix, uint64_t seed)
    : environment_(environment),
      client_(ConnectForLoad(environment.cluster)),
      prefix_(std::move(prefix)),
      random_(seed) {}

void MetadataLoad::Run(const std::atomic<bool>& stop) {
  while (!stop) {
    if (random_() % 3 == 0) {
      DeleteSome();
    } else {
      Create();
    }
  }
}

void MetadataLoad::Create() {
  v1::Mesh mesh;
  mesh.set_name(absl::StrCat(prefix_, meshes_.size()));
  mesh.set_axes("x=2");
  mesh.set_devices("m.0-1");
  const absl::StatusOr<int64_t> revision = client_.CreateMesh(mesh);
  meshes_[mesh.name()] = revision.ok() ? Presence::kThere : Presence::kUnknown;
  acknowledged_ += revision.ok();
}

void MetadataLoad::DeleteSome() {
  if (meshes_.empty()) return;
  auto& [name, presence] =
      *std::next(meshes_.begin(), static_cast<int64_t>(random_() % meshes_.size()));
  if (presence != Presence::kThere) return;
  const absl::Status status = client_.DeleteMesh(name);
  presence = status.ok() ? Presence::kGone : Presence::kUnknown;
  acknowledged_ += status.ok();
}

void MetadataLoad::Check() {
  for (const auto& [name, presence] : meshes_) {
    if (presence == Presence::kUnknown) continue;
    const absl::Status found = client_.GetMesh(name).status();
    const absl::StatusCode expected =
        presence == Presence::kThere ? absl::StatusCode::kOk : absl::StatusCode::kNotFound;
    if (found.code() == expected) continue;
    environment_.violations.Add(absl::StrCat("mesh ", name, ": expected ",
                                             presence == Presence::kThere ? "one" : "none",
                                             ", found ", found.ToString()));
  }
}

std::string MetadataLoad::Summary() const { return absl::StrCat("acknowledged ", acknowledged_); }

}  // namespace crossmesh
