#include "common/communicators/gpu_share.h"

namespace crossmesh {
namespace {

constexpr char kBeforeShare = ':';

}  // namespace

bool IsGpuShare(absl::string_view gpu) { return gpu.find(kBeforeShare) != gpu.npos; }

std::string UuidOf(absl::string_view gpu) {
  return std::string(gpu.substr(0, gpu.find(kBeforeShare)));
}

}  // namespace crossmesh
