// Messages between a worker and the process of a GPU, neither of which trusts the other.

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"
#include "worker/gpu/protocol/gpu_message_codec.h"

#include <string>

#include <absl/status/statusor.h>

namespace crossmesh {
namespace {

// Whatever is taken is sent on as bytes that mean the same.
void CheckRequest(absl::string_view bytes) {
  const absl::StatusOr<GpuRequest> request = DecodeGpuRequest(bytes);
  if (!request.ok()) return;
  const std::string encoded = Encode(*request);
  const absl::StatusOr<GpuRequest> again = DecodeGpuRequest(encoded);
  CHECK_OK(again);
  CHECK_EQ(Encode(*again), encoded);
}

void CheckNotice(absl::string_view bytes) {
  const absl::StatusOr<GpuNotice> notice = DecodeGpuNotice(bytes);
  if (!notice.ok()) return;
  const std::string encoded = Encode(*notice);
  const absl::StatusOr<GpuNotice> again = DecodeGpuNotice(encoded);
  CHECK_OK(again);
  CHECK_EQ(Encode(*again), encoded);
}

}  // namespace
}  // namespace crossmesh

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  crossmesh::CheckRequest(crossmesh::TextOf(data, size));
  crossmesh::CheckNotice(crossmesh::TextOf(data, size));
  return 0;
}
