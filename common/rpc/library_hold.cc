#include "common/rpc/library_hold.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>

namespace crossmesh {
namespace {

// A channel without credentials connects to nothing and fails each call at once. One call with a
// callback is enough for it to hold what serves callbacks.
struct Hold {
  Hold() : stub(grpc::CreateChannel("", nullptr)) {
    absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
    stub.UnaryCall(&context, "", {}, &request, &response, [](const grpc::Status&) {});
  }

  grpc::GenericStub stub;
  grpc::ClientContext context;
  const grpc::ByteBuffer request{nullptr, 0};
  grpc::ByteBuffer response;
};

}  // namespace

void HoldRpcLibrary() {
  static const Hold& hold = *new Hold;
  static_cast<void>(hold);
}

}  // namespace crossmesh
