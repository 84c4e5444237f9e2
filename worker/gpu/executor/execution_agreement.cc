#include "worker/gpu/executor/execution_agreement.h"

#include <string>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

std::string ToText(const ExecutionAgreement& agreement) {
  return absl::StrCat("compiled part ", agreement.compiled.ToString(), " for operation ",
                      agreement.operation, " of epoch ", agreement.epoch, ", plan ", agreement.plan,
                      ", instance ", agreement.instance);
}

}  // namespace

absl::Status CheckAgreement(const ExecutionAgreement& own, const ExecutionAgreement& of_peer,
                            absl::string_view peer) {
  if (own == of_peer) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("device ", peer,
                                                    " does not run the same: ", "expected ",
                                                    ToText(own), ", found ", ToText(of_peer)));
}

}  // namespace crossmesh
