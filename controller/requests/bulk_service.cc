#include "controller/requests/bulk_service.h"

#include "common/base/check.h"
#include "controller/requests/message_footprint.h"
#include "controller/requests/request_budget.h"

#include <cstdint>

#include <absl/cleanup/cleanup.h>
#include <absl/strings/str_cat.h>
#include <google/protobuf/descriptor.h>
#include <grpcpp/support/proto_buffer_reader.h>

namespace crossmesh {

absl::StatusOr<std::shared_ptr<void>> ReadWithin(RequestBudget& budget, grpc::ByteBuffer& bytes,
                                                 google::protobuf::Message& message) {
  const absl::Cleanup free_bytes = [&bytes] { bytes.Clear(); };
  const google::protobuf::Descriptor& type = *message.GetDescriptor();
  int64_t footprint = 0;
  {
    grpc::ProtoBufferReader reader(&bytes);
    ASSIGN_OR_RETURN(footprint, FootprintOf(type, reader, budget.bytes_max()));
  }
  ASSIGN_OR_RETURN(RequestBudget::Share share,
                   budget.Take(footprint + static_cast<int64_t>(bytes.Length())));
  grpc::ProtoBufferReader reader(&bytes);
  if (message.ParseFromZeroCopyStream(&reader)) {
    return std::make_shared<RequestBudget::Share>(std::move(share));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("request: expected one message ", type.full_name(), ", found other bytes"));
}

int IndexOfMethod(const std::string& service, const std::string& method) {
  const google::protobuf::MethodDescriptor* found =
      google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(
          absl::StrCat(service, ".", method));
  CHECK(found != nullptr) << service << "." << method;
  return found->index();
}

}  // namespace crossmesh
