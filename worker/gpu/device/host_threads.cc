#include "worker/gpu/device/host_threads.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"

#include <absl/memory/memory.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::StatusOr<std::unique_ptr<HostThreads>> HostThreads::Create(Gpu& gpu, EventLoop& loop,
                                                                 int count) {
  CHECK_GT(count, 0);
  auto made = absl::WrapUnique(new HostThreads(loop));
  for (int i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> thread,
                     EventLoop::Create(made->clock_, {.name = absl::StrCat("gpu-host-", i)}));
    thread->Start();
    absl::Status status;
    thread->RunAndWait([&] { status = gpu.MakeCurrent(); });
    RETURN_IF_ERROR(status);
    made->threads_.push_back(std::move(thread));
  }
  return made;
}

}  // namespace crossmesh
