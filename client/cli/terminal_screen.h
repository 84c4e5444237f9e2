#pragma once

#include "client/cli/top_frame.h"
#include "common/base/unique_fd.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/status/statusor.h>
#include <absl/time/time.h>
#include <termios.h>

namespace crossmesh {

// The whole of a terminal, for something that is drawn over itself: what was there before is there
// again when this goes. One at a time in a process, before it has other threads: signals are
// blocked in the thread that makes it. Thread-compatible.
class TerminalScreen {
 public:
  // FailedPrecondition: standard input or output is no terminal.
  static absl::StatusOr<std::unique_ptr<TerminalScreen>> Take();
  ~TerminalScreen();
  TerminalScreen(const TerminalScreen&) = delete;
  TerminalScreen& operator=(const TerminalScreen&) = delete;

  // As the terminal has it now.
  ScreenSize size() const;
  // The error of standard output.
  absl::Status Draw(const std::vector<std::string>& lines);

  enum class Event { kTime, kResized, kQuit };
  // What comes first: the time's end, another size, or q, an interrupt or the input's end.
  Event Wait(absl::Duration most);

 private:
  TerminalScreen(const termios& before, UniqueFd signals);

  const termios before_;
  const UniqueFd signals_;
};

}  // namespace crossmesh
