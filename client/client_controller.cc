// What a Client asks of the controller itself.

#include "client/client.h"
#include "client/client_calls.h"
#include "common/base/status_macros.h"

#include <string>
#include <vector>

#include <absl/status/statusor.h>

namespace crossmesh {

absl::StatusOr<v1::Controller> Client::GetController() {
  ASSIGN_OR_RETURN(const v1::GetControllerResponse response,
                   Call(&Stubs::controllers, &v1::ControllerService::Stub::GetController,
                        v1::GetControllerRequest()));
  return response.controller();
}

absl::StatusOr<std::vector<std::string>> Client::ListLogLines(int32_t count) {
  v1::ListLogLinesRequest request;
  request.set_count(count);
  ASSIGN_OR_RETURN(const v1::ListLogLinesResponse response,
                   Call(&Stubs::controllers, &v1::ControllerService::Stub::ListLogLines, request));
  return std::vector<std::string>(response.lines().begin(), response.lines().end());
}

absl::StatusOr<std::string> Client::BackUpStore() {
  // Once: each call makes a file.
  ASSIGN_OR_RETURN(const v1::BackUpStoreResponse response,
                   CallOnce(&Stubs::controllers, &v1::ControllerService::Stub::BackUpStore,
                            v1::BackUpStoreRequest()));
  return response.file();
}

absl::StatusOr<int64_t> Client::VerifyStore() {
  ASSIGN_OR_RETURN(const v1::VerifyStoreResponse response,
                   Call(&Stubs::controllers, &v1::ControllerService::Stub::VerifyStore,
                        v1::VerifyStoreRequest()));
  return response.revision();
}

absl::Status Client::ReleaseStoreReserve() {
  return Call(&Stubs::controllers, &v1::ControllerService::Stub::ReleaseStoreReserve,
              v1::ReleaseStoreReserveRequest())
      .status();
}

}  // namespace crossmesh
