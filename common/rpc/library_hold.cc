#include "common/rpc/library_hold.h"

#include <grpc/grpc.h>

namespace crossmesh {

void HoldRpcLibrary() {
  static const bool held = [] {
    grpc_init();
    return true;
  }();
  static_cast<void>(held);
}

}  // namespace crossmesh
