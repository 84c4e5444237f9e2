#include "tests/standin/nccl/group.h"

#include <utility>

namespace crossmesh {

Group& Group::OfThread() {
  thread_local Group group;
  return group;
}

Result Group::Remember(const Result& result) {
  if (depth_ > 0 && !result.ok() && error_.ok()) error_ = Failure(result.code, result.text);
  return result;
}

Result Group::End() {
  if (depth_ == 0) return Violation(ncclInvalidUsage, "without ncclGroupStart");
  if (--depth_ > 0) return {};
  const Group ended = std::exchange(*this, Group());
  if (!ended.error_.ok()) return ended.error_;
  if (ended.operations_.empty()) return {};
  Communicator* communicator = nullptr;
  RETURN_IF_FAILED(
      NcclCall::Need(ended.handle_, Communicator::Purpose::kCommunicate, communicator));
  return communicator->Submit(ended.operations_);
}

Result Group::Add(ncclComm_t handle, const Operation& operation) {
  Communicator* communicator = nullptr;
  const Result found = NcclCall::Need(handle, Communicator::Purpose::kCommunicate, communicator);
  if (!found.ok()) return Remember(found);
  const Result checked = communicator->CheckOperation(operation);
  if (!checked.ok()) return Remember(checked);
  if (depth_ == 0) return communicator->Submit({&operation, 1});
  if (handle_ != nullptr && handle_ != handle) {
    return Remember(
        Violation(ncclInvalidUsage,
                  "in a group of another communicator; an error of one would be that of "
                  "both"));
  }
  handle_ = handle;
  operations_.push_back(operation);
  return {};
}

Result Group::CheckNone() const {
  if (depth_ == 0) return {};
  return Violation(ncclInvalidUsage, "between ncclGroupStart and ncclGroupEnd");
}

}  // namespace crossmesh
