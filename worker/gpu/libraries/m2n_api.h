#pragma once

#include "worker/gpu/libraries/m2n_declarations.h"
#include "worker/gpu/libraries/nccl_api.h"
#include "worker/gpu/libraries/shared_library.h"

#include <memory>
#include <string>
#include <utility>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

// NCCL M2N, loaded at run time after NCCL, which it uses. Its calls are members, as those of
// NcclApi. Immutable.
class M2nApi {
 public:
  // As nccl_m2n.h demands.
  static constexpr int kNcclVersionMin = NCCL_VERSION(2, 30, 5);

  // Instead of a library: it is not to be used.
  static constexpr absl::string_view kNone = "none";

  struct Options {
    std::string library = "libnccl_m2n.so";
  };

  // NotFound when there is no such library. FailedPrecondition, with what was expected and found,
  // when it lacks a symbol, NCCL is too old for it, or it is not to be used. `nccl` must outlive
  // it. Starts nothing.
  static absl::StatusOr<std::unique_ptr<const M2nApi>> Load(const NcclApi& nccl,
                                                            const Options& options);

  // OK for ncclSuccess. Else as NcclApi::Check, with M2N's text for the last error of this thread.
  absl::Status Check(ncclResult_t result, absl::string_view call) const;

  // "NCCL M2N, /usr/lib/libnccl_m2n.so": no call tells its version.
  std::string description() const { return library_.Describe("NCCL M2N"); }

#define CROSSMESH_M2N_MEMBER(symbol) decltype(&::symbol) symbol = nullptr;
  CROSSMESH_M2N_SYMBOLS(CROSSMESH_M2N_MEMBER)
#undef CROSSMESH_M2N_MEMBER

 private:
  M2nApi(const NcclApi& nccl, SharedLibrary library) : nccl_(nccl), library_(std::move(library)) {}

  const NcclApi& nccl_;
  SharedLibrary library_;
};

}  // namespace crossmesh
