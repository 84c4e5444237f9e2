#include "worker/gpu/libraries/nccl_api.h"

#include "common/base/status_macros.h"

#include <utility>
#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string NcclVersionText(int version) {
  return absl::StrCat(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

absl::StatusCode CodeOf(ncclResult_t result) {
  switch (static_cast<int>(result)) {
    case ncclInvalidArgument:
      return absl::StatusCode::kInvalidArgument;
    case ncclInvalidUsage:
      return absl::StatusCode::kFailedPrecondition;
    case ncclRemoteError:
    case ncclSystemError:
      return absl::StatusCode::kUnavailable;
    case ncclTimeout:
      return absl::StatusCode::kDeadlineExceeded;
    default:
      return absl::StatusCode::kInternal;
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<const NcclApi>> NcclApi::Load(const Options& options) {
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Load(options.library));
  auto api = absl::WrapUnique(new NcclApi(std::move(library)));

  std::vector<absl::string_view> missing;
#define CROSSMESH_RESOLVE(symbol) \
  if (!api->library_.Resolve(#symbol, api->symbol)) missing.emplace_back(#symbol);
  CROSSMESH_NCCL_SYMBOLS(CROSSMESH_RESOLVE)
#undef CROSSMESH_RESOLVE
#define CROSSMESH_RESOLVE_IF_THERE(symbol) api->library_.Resolve(#symbol, api->symbol);
  CROSSMESH_OPTIONAL_NCCL_SYMBOLS(CROSSMESH_RESOLVE_IF_THERE)
#undef CROSSMESH_RESOLVE_IF_THERE

  if (api->ncclGetVersion != nullptr) api->ncclGetVersion(&api->version_);
  if (api->version_ < kVersionMin || !missing.empty()) {
    return TooOld(api->description(), NcclVersionText(kVersionMin), missing);
  }
  return api;
}

absl::Status NcclApi::Check(ncclResult_t result, absl::string_view call) const {
  if (result == ncclSuccess || result == ncclInProgress) return absl::OkStatus();
  std::string message =
      absl::StrCat(call, ": ", ncclGetErrorString(result), " (", static_cast<int>(result), ")");
  const char* last = ncclGetLastError(nullptr);
  if (last != nullptr && *last != '\0') absl::StrAppend(&message, ": ", last);
  return absl::Status(CodeOf(result), message);
}

std::string NcclApi::description() const {
  return library_.Describe(absl::StrCat("NCCL ", NcclVersionText(version_)));
}

}  // namespace crossmesh
