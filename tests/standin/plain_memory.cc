#include "tests/standin/plain_memory.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "worker/gpu/libraries/driver_symbols.h"

#include <absl/memory/memory.h>
#include <dlfcn.h>

namespace crossmesh {
namespace {

// A call of the stand-in, which this process has loaded.
template <typename Function>
Function* Find(Function*, const char* name) {
  void* const library = dlopen(StandInDriverPath().c_str(), RTLD_NOW | RTLD_NOLOAD);
  CHECK(library != nullptr) << dlerror();
  void* const symbol = dlsym(library, name);
  dlclose(library);
  CHECK(symbol != nullptr) << name;
  return reinterpret_cast<Function*>(symbol);
}

#define CROSSMESH_FIND(symbol) \
  Find(static_cast<decltype(&(symbol))>(nullptr), CROSSMESH_SYMBOL_NAME(symbol))

}  // namespace

absl::StatusOr<std::unique_ptr<PlainMemory>> PlainMemory::Create(const StandIn& stand_in,
                                                                 size_t bytes) {
  auto memory = absl::WrapUnique(new PlainMemory(bytes));
  RETURN_IF_ERROR(
      stand_in.Check(CROSSMESH_FIND(cuMemAlloc)(&memory->address_, bytes), "cuMemAlloc"));
  CUipcMemHandle handle;
  RETURN_IF_ERROR(stand_in.Check(CROSSMESH_FIND(cuIpcGetMemHandle)(&handle, memory->address_),
                                 "cuIpcGetMemHandle"));
  memory->ipc_handle_.assign(handle.reserved, sizeof(handle.reserved));
  return memory;
}

PlainMemory::~PlainMemory() {
  if (address_ != 0) CHECK_EQ(CROSSMESH_FIND(cuMemFree)(address_), CUDA_SUCCESS);
}

}  // namespace crossmesh
