#include "tests/standin/driver/call.h"
#include "tests/standin/driver/driver_state.h"
#include "tests/standin/driver/faults.h"

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr unsigned int kThreadsMax = 1024;

Outcome NeedModule(CUmodule handle, Module*& module) {
  module = State().modules.Find(handle);
  if (module != nullptr) return {};
  return Violation(CUDA_ERROR_INVALID_HANDLE, "no such module, or one that was unloaded");
}

Outcome NeedFunction(CUfunction handle, Function*& function) {
  function = State().functions.Find(handle);
  if (function == nullptr) return Violation(CUDA_ERROR_INVALID_HANDLE, "no such function");
  Module* module = nullptr;
  return NeedModule(reinterpret_cast<CUmodule>(&function->module), module);
}

// The arguments of one launch, copied as CUDA copies them.
class Arguments {
 public:
  Arguments(const StandInKernel& kernel, void* const* values) {
    for (size_t i = 0; i < kernel.argument_count; ++i) {
      const size_t bytes = kernel.argument_bytes[i];
      // Aligned for any type.
      storage_.push_back(std::make_unique<std::max_align_t[]>(
          (bytes + sizeof(std::max_align_t) - 1) / sizeof(std::max_align_t)));
      std::memcpy(storage_.back().get(), values[i], bytes);
      pointers_.push_back(storage_.back().get());
    }
  }

  void* const* pointers() const { return pointers_.data(); }

 private:
  std::vector<std::unique_ptr<std::max_align_t[]>> storage_;
  std::vector<void*> pointers_;
};

Outcome CheckShape(const StandInLaunch& launch) {
  uint64_t threads = 1;
  for (int i = 0; i < 3; ++i) {
    if (launch.grid[i] == 0 || launch.block[i] == 0) {
      return Violation(CUDA_ERROR_INVALID_VALUE, "a grid or block of size 0");
    }
    threads *= launch.block[i];
  }
  if (threads > kThreadsMax) {
    return Violation(CUDA_ERROR_INVALID_VALUE, absl::StrCat("blocks of ", threads, " threads"));
  }
  return {};
}

}  // namespace
}  // namespace crossmesh

using crossmesh::Call;
using crossmesh::Function;
using crossmesh::Module;
using crossmesh::State;
using crossmesh::Stream;

extern "C" {

CUresult cuModuleLoadData(CUmodule* handle, const void* image) {
  Call call("cuModuleLoadData");
  int device = -1;
  END_IF_FAILED(call, Call::NeedContext(device));
  if (image == nullptr) return call.Refuse(CUDA_ERROR_INVALID_VALUE, "no image");
  *handle = reinterpret_cast<CUmodule>(State().modules.Add(std::make_unique<Module>()));
  return call.End();
}

CUresult cuModuleUnload(CUmodule handle) {
  Call call("cuModuleUnload");
  Module* module = nullptr;
  END_IF_FAILED(call, crossmesh::NeedModule(handle, module));
  if (module->queued_launches > 0) {
    return call.Refuse(CUDA_ERROR_ILLEGAL_STATE, "launches of its functions are still queued");
  }
  State().modules.Close(module);
  return call.End();
}

CUresult cuModuleGetFunction(CUfunction* handle, CUmodule module_handle, const char* name) {
  Call call("cuModuleGetFunction");
  Module* module = nullptr;
  END_IF_FAILED(call, crossmesh::NeedModule(module_handle, module));
  const StandInKernel* kernel = State().kernels.Find(name);
  if (kernel == nullptr) {
    return call.Fail(CUDA_ERROR_NOT_FOUND, absl::StrCat("no host function stands in for ", name));
  }
  *handle = reinterpret_cast<CUfunction>(
      State().functions.Add(std::unique_ptr<Function>(new Function{*module, *kernel})));
  return call.End();
}

CUresult cuLaunchKernel(CUfunction handle, unsigned int grid_x, unsigned int grid_y,
                        unsigned int grid_z, unsigned int block_x, unsigned int block_y,
                        unsigned int block_z, unsigned int, CUstream stream_handle,
                        void** arguments, void** extra) {
  Call call("cuLaunchKernel", stream_handle);
  Stream* stream = nullptr;
  Function* function = nullptr;
  END_IF_FAILED(call, Call::NeedStream(stream_handle, stream));
  END_IF_FAILED(call, crossmesh::NeedFunction(handle, function));
  const StandInKernel& kernel = function->kernel;
  StandInLaunch launch = {.grid = {grid_x, grid_y, grid_z},
                          .block = {block_x, block_y, block_z},
                          .context = kernel.context};
  END_IF_FAILED(call, crossmesh::CheckShape(launch));
  if (extra != nullptr || (arguments == nullptr && kernel.argument_count > 0)) {
    return call.Refuse(CUDA_ERROR_INVALID_VALUE, "arguments are given one by one");
  }
  const bool is_faulty = crossmesh::Faults::OfProcess().Due("illegal_address_at");
  auto task = [&kernel, launch, function, is_faulty, device = stream->device(),
               copied = crossmesh::Arguments(kernel, arguments)]() mutable {
    launch.arguments = copied.pointers();
    if (!is_faulty && State().CheckContext(device).ok()) kernel.run(&launch);
    --function->module.queued_launches;
    if (is_faulty) State().BreakContext(device);
  };
  ++function->module.queued_launches;
  stream->Enqueue(std::move(task));
  return call.End();
}

}  // extern "C"
