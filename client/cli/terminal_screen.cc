#include "client/cli/terminal_screen.h"

#include "common/base/standard_output.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <absl/strings/str_cat.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace crossmesh {
namespace {

// As xterm and all that came after it have them.
constexpr absl::string_view kEnter = "\x1b[?1049h\x1b[?25l";  // the other screen, no cursor
constexpr absl::string_view kLeave = "\x1b[?25h\x1b[?1049l";
constexpr absl::string_view kHome = "\x1b[H";
constexpr absl::string_view kClearToEndOfLine = "\x1b[K";
constexpr absl::string_view kClearBelow = "\x1b[J";

sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGWINCH, SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TerminalScreen>> TerminalScreen::Take() {
  termios before = {};
  if (isatty(STDOUT_FILENO) != 1 || tcgetattr(STDIN_FILENO, &before) != 0) {
    return absl::FailedPreconditionError(
        "expected a terminal as standard input and output, found none; --once needs none");
  }
  const sigset_t signals = Signals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  UniqueFd fd(signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return absl::ErrnoToStatus(errno, "signals");
  termios raw = before;
  raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  std::unique_ptr<TerminalScreen> screen(new TerminalScreen(before, std::move(fd)));
  const absl::Status entered = WriteToStandardOutput(kEnter);
  if (!entered.ok()) return entered;
  return screen;
}

TerminalScreen::TerminalScreen(const termios& before, UniqueFd signals)
    : before_(before), signals_(std::move(signals)) {}

TerminalScreen::~TerminalScreen() {
  WriteToStandardOutput(kLeave).IgnoreError();
  tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

ScreenSize TerminalScreen::size() const {
  winsize size = {};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return {};
  return {.columns = size.ws_col, .lines = size.ws_row};
}

absl::Status TerminalScreen::Draw(const std::vector<std::string>& lines) {
  std::string text(kHome);
  for (size_t i = 0; i < lines.size(); ++i) {
    // No end after the last one, which would scroll a full screen.
    absl::StrAppend(&text, i == 0 ? "" : "\r\n", lines[i], kClearToEndOfLine);
  }
  absl::StrAppend(&text, kClearBelow);
  return WriteToStandardOutput(text);
}

TerminalScreen::Event TerminalScreen::Wait(absl::Duration most) {
  std::array<pollfd, 2> fds = {pollfd{.fd = STDIN_FILENO, .events = POLLIN},
                               pollfd{.fd = signals_.get(), .events = POLLIN}};
  const int ready = poll(fds.data(), fds.size(), static_cast<int>(absl::ToInt64Milliseconds(most)));
  if (ready <= 0) return Event::kTime;
  if ((fds[0].revents & (POLLIN | POLLHUP | POLLERR)) != 0) {
    char key = 0;
    if (read(STDIN_FILENO, &key, 1) <= 0 || key == 'q' || key == 'Q') return Event::kQuit;
  }
  signalfd_siginfo signal = {};
  if (fds[1].revents != 0 && read(signals_.get(), &signal, sizeof signal) == sizeof signal &&
      signal.ssi_signo != SIGWINCH) {
    return Event::kQuit;
  }
  // Another key draws the frame anew as well.
  return Event::kResized;
}

}  // namespace crossmesh
