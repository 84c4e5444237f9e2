#pragma once

#include "worker/gpu/libraries/driver_symbols.h"
#include "worker/gpu/libraries/shared_library.h"

#include <memory>
#include <string>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/string_view.h>
#include <cuda.h>

namespace crossmesh {

// The CUDA driver, loaded at run time. Every call of CROSSMESH_DRIVER_SYMBOLS is a member with the
// name and the type that cuda.h gives it:
//
//   RETURN_IF_ERROR(driver.Check(driver.cuInit(0), "cuInit"));
//
// Immutable.
class DriverApi {
 public:
  // The oldest driver that NCCL's build and our kernels for CUDA 13 run on, as cuDriverGetVersion
  // counts.
  static constexpr int kVersionMin = 13000;

  struct Options {
    std::string library = "libcuda.so.1";
  };

  // NotFound when there is no such library, which is how a machine without GPUs looks;
  // FailedPrecondition, with what was expected and found, when it is too old or lacks a symbol.
  // Loading starts nothing: cuInit does.
  static absl::StatusOr<std::unique_ptr<const DriverApi>> Load(const Options& options);

  // OK for CUDA_SUCCESS; else an error with `call`, the driver's name for the result and its text.
  // ResourceExhausted for lack of memory; Unavailable for a state of the machine that passes;
  // NotFound without a device; FailedPrecondition without a driver or kernels that are new enough;
  // Internal for all else.
  absl::Status Check(CUresult result, absl::string_view call) const;

  int version() const { return version_; }  // 13000 is CUDA 13.0
  // "CUDA driver 13.0, /usr/lib/libcuda.so.1"
  std::string description() const;

#define CROSSMESH_DRIVER_MEMBER(symbol) decltype(&::symbol) symbol = nullptr;
  CROSSMESH_DRIVER_SYMBOLS(CROSSMESH_DRIVER_MEMBER)
#undef CROSSMESH_DRIVER_MEMBER

 private:
  explicit DriverApi(SharedLibrary library) : library_(std::move(library)) {}

  SharedLibrary library_;
  int version_ = 0;
};

}  // namespace crossmesh
