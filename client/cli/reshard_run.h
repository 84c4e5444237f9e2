#pragma once

#include "crossmesh/v1/reshard.pb.h"

#include <string>

#include <absl/status/status.h>

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

class Cli;

// Running a reshard as a user sees it: the operation's id at once, progress, and its report.
class ReshardRun {
 public:
  // --request-id and --detach.
  void AddTo(CLI::App& command);
  bool is_given() const { return detach_ || !request_id_.empty(); }

  // Executes, and follows it to its end unless it is to be left to itself. `label` stands in the
  // line of progress. Interrupting it does not end the operation.
  absl::Status Run(Cli& cli, const v1::ReshardSpec& spec, const std::string& label) const;

 private:
  std::string request_id_;
  bool detach_ = false;
};

}  // namespace crossmesh
