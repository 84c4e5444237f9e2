#include "common/rpc/request_size.h"

#include "common/rpc/server.h"

#include <cstddef>

#include <absl/strings/str_cat.h>

namespace crossmesh {

absl::Status CheckRequestBytes(const google::protobuf::Message& request) {
  const size_t bytes = request.ByteSizeLong();
  if (bytes <= RpcServer::kMessageBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(request.GetTypeName(), ": expected at most ",
                                                   static_cast<int>(RpcServer::kMessageBytesMax),
                                                   " bytes, found ", bytes));
}

}  // namespace crossmesh
