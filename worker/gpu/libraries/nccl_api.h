#pragma once

#include "worker/gpu/libraries/nccl_symbols.h"
#include "worker/gpu/libraries/shared_library.h"

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <nccl.h>

namespace crossmesh {

// NCCL, loaded at run time. Every call of nccl_symbols.h is a member with the name and the type
// that nccl.h gives it:
//
//   RETURN_IF_ERROR(nccl.Check(nccl.ncclGroupStart(), "ncclGroupStart"));
//
// Those that a library may lack are null in one that does. Immutable.
class NcclApi {
 public:
  // The oldest that Crossmesh was checked against, as ncclGetVersion counts.
  static constexpr int kVersionMin = NCCL_VERSION(2, 28, 9);

  struct Options {
    std::string library = "libnccl.so.2";
  };

  // NotFound when there is no such library; FailedPrecondition, with what was expected and found,
  // when it is too old or lacks a symbol. Needs no driver and starts nothing.
  static absl::StatusOr<std::unique_ptr<const NcclApi>> Load(const Options& options);

  // OK for ncclSuccess, and for ncclInProgress, with which calls on a non-blocking communicator
  // that are well under way answer. Else an error with `call`, NCCL's text for the result and for
  // the last error. InvalidArgument; FailedPrecondition for invalid usage, such as two ranks on one
  // GPU; Unavailable when a peer or the network failed; DeadlineExceeded; Internal for all else.
  absl::Status Check(ncclResult_t result, absl::string_view call) const;

  int version() const { return version_; }  // 23007 is 2.30.7
  // "NCCL 2.30.7, /usr/lib/libnccl.so.2"
  std::string description() const;

  // If the environment has NCCL_MULTI_RANK_GPU_ENABLE=1.
  bool can_run_ranks_on_one_gpu() const { return version_ >= NCCL_VERSION(2, 30, 3); }

#define CROSSMESH_NCCL_MEMBER(symbol) decltype(&::symbol) symbol = nullptr;
  CROSSMESH_NCCL_SYMBOLS(CROSSMESH_NCCL_MEMBER)
  CROSSMESH_OPTIONAL_NCCL_SYMBOLS(CROSSMESH_NCCL_MEMBER)
#undef CROSSMESH_NCCL_MEMBER

 private:
  explicit NcclApi(SharedLibrary library) : library_(std::move(library)) {}

  SharedLibrary library_;
  int version_ = 0;
};

}  // namespace crossmesh
