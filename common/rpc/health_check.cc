#include "common/rpc/health_check.h"

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <cstdint>
#include <string>

#include <absl/strings/str_cat.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

namespace crossmesh {
namespace {

// gRPC serves grpc.health.v1 but has no stub of it, so both messages are written here:
// HealthCheckRequest is {string service = 1}, HealthCheckResponse is {ServingStatus status = 1}.
constexpr char kServiceField = '\x0a';
constexpr char kStatusField = '\x08';
constexpr char kServing = 1;
constexpr size_t kServiceBytesMax = 127;  // its length is one byte

std::string RequestFor(absl::string_view service) {
  CHECK_LE(service.size(), kServiceBytesMax);
  if (service.empty()) return "";
  return absl::StrCat(std::string({kServiceField, static_cast<char>(service.size())}), service);
}

bool SaysServing(const grpc::ByteBuffer& response) {
  grpc::Slice bytes;
  return response.DumpToSingleSlice(&bytes).ok() && bytes.size() == 2 &&
         bytes.begin()[0] == kStatusField && bytes.begin()[1] == kServing;
}

}  // namespace

absl::StatusOr<bool> IsServing(const std::shared_ptr<grpc::Channel>& channel,
                               absl::string_view service, absl::Duration timeout) {
  const grpc::Slice bytes(RequestFor(service));
  const grpc::ByteBuffer request(&bytes, 1);
  grpc::ByteBuffer response;
  grpc::Status status;
  grpc::ClientContext context;
  SetDeadline(context, timeout);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto call =
      stub.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue);
  call->StartCall();
  call->Finish(&response, &status, nullptr);
  // The call has a deadline, so this ends.
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  RETURN_IF_ERROR(FromGrpcStatus(status));
  return SaysServing(response);
}

}  // namespace crossmesh
