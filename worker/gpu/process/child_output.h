#pragma once

#include "common/base/unique_fd.h"
#include "common/event_loop/event_source.h"

#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include <absl/status/statusor.h>

namespace crossmesh {

// What a child has written to a pipe: the end of it is kept. The child never waits: what it writes
// faster than this reads is lost. Confined to its loop.
class ChildOutput final : public EventSource {
 public:
  static constexpr size_t kKeptBytesMax = 4096;

  struct Made {
    std::unique_ptr<ChildOutput> output;
    UniqueFd end;  // for the child; closed when a program is started that is not given it
  };
  // ResourceExhausted: no descriptors left.
  static absl::StatusOr<Made> Create();

  // The last lines so far, whole ones.
  std::string LastLines();

  int Progress() override;
  int event_fd() const override { return epoll_.get(); }

 private:
  ChildOutput(UniqueFd epoll, UniqueFd pipe) : epoll_(std::move(epoll)), pipe_(std::move(pipe)) {}

  const UniqueFd epoll_;  // has the pipe until its end
  UniqueFd pipe_;
  std::string kept_;
};

}  // namespace crossmesh
