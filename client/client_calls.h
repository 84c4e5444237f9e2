// How a Client makes calls that answer once: again while the controller is unavailable, and page by
// page. Only the sources of Client need these.

#pragma once

#include "client/client.h"
#include "client/controllers.h"
#include "common/base/status_macros.h"
#include "common/rpc/deadline.h"
#include "common/rpc/status_codec.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <google/protobuf/repeated_ptr_field.h>
#include <grpcpp/client_context.h>

namespace crossmesh {

template <typename Request>
Request WithId(const std::string& id) {
  Request request;
  request.set_id(id);
  return request;
}

template <typename Request>
Request Named(const std::string& name) {
  Request request;
  request.set_name(name);
  return request;
}

// One call, made at the controller whose stubs it is given.
template <typename Stub, typename Request, typename Response>
auto Client::Attempt(Service<Stub> service, Method<Stub, Request, Response> method,
                     const Request& request, Response& response) const {
  return [this, service, method, &request, &response](Stubs& stubs) {
    grpc::ClientContext context;
    SetDeadline(context, options_.call_timeout);
    return FromGrpcStatus(((*(stubs.*service)).*method)(&context, request, &response));
  };
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::CallOnce(Service<Stub> service,
                                          Method<Stub, Request, Response> method,
                                          const Request& request) const {
  Response response;
  RETURN_IF_ERROR(controllers_->Call(Attempt(service, method, request, response)));
  return response;
}

template <typename Stub, typename Request, typename Response>
absl::StatusOr<Response> Client::Call(Service<Stub> service, Method<Stub, Request, Response> method,
                                      const Request& request) const {
  Response response;
  RETURN_IF_ERROR(Retry(Attempt(service, method, request, response)));
  return response;
}

inline constexpr int32_t kClientPageSize = 1000;

template <typename Item, typename Stub, typename Request, typename Response>
absl::StatusOr<std::vector<Item>> Client::Pages(
    Service<Stub> service, Method<Stub, Request, Response> method,
    const google::protobuf::RepeatedPtrField<Item>& (Response::*items)() const,
    int64_t count) const {
  std::vector<Item> all;
  Request request;
  do {
    const int64_t missing = count - std::ssize(all);
    request.set_page_size(static_cast<int32_t>(std::min<int64_t>(missing, kClientPageSize)));
    ASSIGN_OR_RETURN(const Response page, Call(service, method, request));
    const google::protobuf::RepeatedPtrField<Item>& found = (page.*items)();
    const auto wanted = std::min<int64_t>(missing, found.size());
    all.insert(all.end(), found.begin(), found.begin() + wanted);
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty() && std::ssize(all) < count);
  return all;
}

}  // namespace crossmesh
