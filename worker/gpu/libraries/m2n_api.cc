#include "worker/gpu/libraries/m2n_api.h"

#include "common/base/status_macros.h"

#include <vector>

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<const M2nApi>> M2nApi::Load(const NcclApi& nccl,
                                                           const Options& options) {
  if (options.library == kNone)
    return absl::FailedPreconditionError("NCCL M2N: --m2n-library says none");
  if (nccl.version() < kNcclVersionMin) {
    return absl::FailedPreconditionError(
        absl::StrCat("NCCL M2N: expected NCCL 2.30.5 or later, found ", nccl.description()));
  }
  ASSIGN_OR_RETURN(SharedLibrary library, SharedLibrary::Load(options.library));
  auto api = absl::WrapUnique(new M2nApi(nccl, std::move(library)));
  std::vector<absl::string_view> missing;
#define CROSSMESH_RESOLVE(symbol) \
  if (!api->library_.Resolve(#symbol, api->symbol)) missing.emplace_back(#symbol);
  CROSSMESH_M2N_SYMBOLS(CROSSMESH_RESOLVE)
#undef CROSSMESH_RESOLVE
  if (missing.empty()) return api;
  return absl::FailedPreconditionError(
      absl::StrCat(api->description(),
                   ": expected these symbols, which it lacks: ", absl::StrJoin(missing, ", ")));
}

absl::Status M2nApi::Check(ncclResult_t result, absl::string_view call) const {
  if (result == ncclSuccess) return absl::OkStatus();
  const absl::Status status = nccl_.Check(result, call);
  // M2N waits for what is in progress.
  const absl::StatusCode code = status.ok() ? absl::StatusCode::kInternal : status.code();
  const char* const detail = ncclM2nGetLastError();
  return absl::Status(code, absl::StrCat(status.ok() ? call : status.message(), ": ",
                                         detail == nullptr ? "" : detail));
}

}  // namespace crossmesh
