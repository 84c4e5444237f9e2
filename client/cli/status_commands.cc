#include "client/cli/cli.h"
#include "client/cli/cluster_view.h"
#include "client/cli/duration_flag.h"
#include "client/cli/options.h"
#include "client/cli/status_report.h"
#include "client/cli/terminal_screen.h"
#include "client/cli/top_frame.h"
#include "client/client.h"
#include "client/pause.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"

#include <cstdlib>
#include <memory>
#include <string>

#include <absl/strings/numbers.h>
#include <absl/strings/str_join.h>
#include <nlohmann/json.hpp>

namespace crossmesh {
namespace {

// A screen must not wait for long: what is known already is shown meanwhile.
constexpr absl::Duration kPatience = absl::Seconds(2);

struct TopFlags {
  bool once = false;
  std::string interval = "2s";
};

absl::Status Status(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const ClusterView view, LookAtCluster(client, RealClock().Monotonic()));
  return cli.json() ? cli.Answer(StatusDocument(view), "")
                    : cli.Answer(nlohmann::json(), StatusText(view));
}

// As $COLUMNS and $LINES say, where there is no terminal that would.
ScreenSize SizeOfOutput() {
  ScreenSize size = {.columns = 160, .lines = 1000};
  for (const auto& [name, value] :
       {std::pair("COLUMNS", &size.columns), std::pair("LINES", &size.lines)}) {
    const char* const text = std::getenv(name);
    int number = 0;
    if (text != nullptr && absl::SimpleAtoi(text, &number) && number > 0) *value = number;
  }
  return size;
}

// Two looks, since a rate is of two.
absl::Status Once(Cli& cli, Client& client, absl::Duration interval) {
  const RealClock clock;
  TopFrame frame;
  ASSIGN_OR_RETURN(ClusterView view, LookAtCluster(client, clock.Monotonic()));
  frame.Update(std::move(view));
  Pause(interval);
  ASSIGN_OR_RETURN(view, LookAtCluster(client, clock.Monotonic()));
  if (cli.json()) return cli.Answer(StatusDocument(view), "");
  frame.Update(std::move(view));
  cli.Print(absl::StrJoin(frame.Lines(SizeOfOutput()), "\n") + "\n");
  return absl::OkStatus();
}

absl::Status Live(Cli& cli, absl::Duration interval) {
  const RealClock clock;
  TopFrame frame;
  // Signals are to be blocked before a connection has threads.
  ASSIGN_OR_RETURN(const std::unique_ptr<TerminalScreen> screen, TerminalScreen::Take());
  ASSIGN_OR_RETURN(Client client, cli.Connect(kPatience));
  ASSIGN_OR_RETURN(ClusterView first, LookAtCluster(client, clock.Monotonic()));
  frame.Update(std::move(first));
  absl::Duration next = clock.Monotonic() + interval;
  while (true) {
    RETURN_IF_ERROR(screen->Draw(frame.Lines(screen->size())));
    const absl::Duration left = std::max(next - clock.Monotonic(), absl::ZeroDuration());
    const TerminalScreen::Event event = screen->Wait(left);
    if (event == TerminalScreen::Event::kQuit) return absl::OkStatus();
    if (event == TerminalScreen::Event::kResized) continue;
    next = clock.Monotonic() + interval;
    absl::StatusOr<ClusterView> view = LookAtCluster(client, clock.Monotonic());
    view.ok() ? frame.Update(*std::move(view)) : frame.SetAway(view.status());
  }
}

absl::Status Top(Cli& cli, const TopFlags& flags) {
  ASSIGN_OR_RETURN(const absl::Duration interval, ParseDurationFlag("interval", flags.interval));
  if (!flags.once && !cli.json()) return Live(cli, interval);
  ASSIGN_OR_RETURN(Client client, cli.Connect(kPatience));
  return Once(cli, client, interval);
}

}  // namespace

void AddStatusCommands(Cli& cli, CLI::App& app) {
  CLI::App& status = cli.AddCommand(
      app, "status", "Shows controller, store, workers, what runs and what failed last",
      "  crossmesh status --controller 127.0.0.1:7400\n");
  cli.AddControllerFlags(status);
  cli.Run(status, [&cli] { return Status(cli); });

  CLI::App& top = cli.AddCommand(
      app, "top", "Shows transfers, links against their rate and workers, live; q ends it",
      "  crossmesh top\n"
      "  crossmesh top --once\n"
      "Links carry what all processes of a host move; their rates are those of network show.\n");
  const auto flags = std::make_shared<TopFlags>();
  AddFlag(top, "--once", flags->once, "Print it once, for scripts and for what is no terminal");
  AddOption(top, "--interval", flags->interval, "Time between two looks").ShowDefault();
  cli.AddControllerFlags(top);
  cli.Run(top, [&cli, flags] { return Top(cli, *flags); });
}

}  // namespace crossmesh
