#include "client/cli/cli.h"
#include "client/cli/network_axes.h"
#include "client/cli/network_report.h"
#include "client/cli/options.h"
#include "client/cli/progress.h"
#include "client/cli/worker_report.h"
#include "client/client.h"
#include "common/base/clock.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/topology_file.h"
#include "common/wire/tensor_codec.h"
#include "common/wire/time_codec.h"
#include "planner/parallelism/measured_axes.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_join.h>
#include <absl/time/time.h>

namespace crossmesh {
namespace {

struct NetworkFlags {
  bool as_file = false;
  std::string file;
  std::string preset;
  std::vector<std::string> hosts;
  std::optional<int64_t> revision;
  double link_seconds = 0.5;
  int64_t link_bytes = 0;
  bool as_rates = false;
  NetworkAxesFlags axes;
};

absl::Status Show(Cli& cli, const NetworkFlags& flags) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::Network network, client.GetNetwork());
  if (flags.as_file) {
    ASSIGN_OR_RETURN(const Topology topology, FromProto(network.topology()));
    cli.Print(ToTopologyFile(topology));
    return absl::OkStatus();
  }
  if (flags.as_rates) {
    if (!network.has_axes()) {
      return absl::FailedPreconditionError(
          "axes: expected some that were measured on the current network, found none: see "
          "crossmesh network measure --help");
    }
    ASSIGN_OR_RETURN(const MeasuredAxes axes, FromProto(network.axes()));
    cli.Print(ToRatesFile(axes));
    return absl::OkStatus();
  }
  const std::string axes = AxesText(network);
  // Its name is its revision, as `set --revision` takes it.
  return cli.AnswerNamed(absl::StrCat(network.revision()), network,
                         absl::StrCat(NetworkText(network), axes.empty() ? "" : "\n", axes));
}

absl::Status Set(Cli& cli, const NetworkFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, ReadFile(flags.file));
  ASSIGN_OR_RETURN(const Topology topology, At(flags.file, ParseTopologyFile(text)));
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  v1::SetNetworkRequest request;
  *request.mutable_topology() = ToProto(topology);
  if (flags.revision.has_value()) request.set_revision(*flags.revision);
  ASSIGN_OR_RETURN(const v1::Network network, client.SetNetwork(request));
  return cli.Answer(network, absl::StrCat("network revision ", network.revision(), ": ",
                                          network.topology().hosts_size(), " hosts, ",
                                          network.topology().racks_size(), " racks\n"));
}

absl::Status Preset(Cli& cli, const NetworkFlags& flags) {
  ASSIGN_OR_RETURN(const Topology topology, GpuHosts(flags.preset, flags.hosts));
  cli.Print(ToTopologyFile(topology));
  return absl::OkStatus();
}

absl::Status Describe(Cli& cli) {
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const std::vector<v1::Worker> workers, client.ListWorkers());
  ASSIGN_OR_RETURN(const Topology topology, DescribedNetwork(workers));
  cli.Print(ToTopologyFile(topology));
  return absl::OkStatus();
}

absl::Status Measure(Cli& cli, const NetworkFlags& flags) {
  if (!flags.axes.mesh.empty() || !flags.axes.axes.empty()) return MeasureAxes(cli, flags.axes);
  v1::MeasureNetworkRequest request;
  *request.mutable_link_time() = ToProto(absl::Seconds(flags.link_seconds));
  request.set_link_bytes(flags.link_bytes);
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  const RealClock clock;
  Progress progress("measure", 0, Progress::FormFor(cli.json()), clock);
  ASSIGN_OR_RETURN(
      const v1::MeasureNetworkResponse::Result result,
      client.MeasureNetwork(request, [&](const v1::MeasureNetworkResponse::Progress& now) {
        progress.Update(now.received_bytes(),
                        absl::StrCat(now.measured_links(), " of ", now.links(), " links"));
      }));
  progress.Finish(absl::StrCat("measured ", result.links_size(), " links"));
  return cli.Answer(result, MeasurementText(result));
}

void AddMeasure(Cli& cli, CLI::App& group, const std::shared_ptr<NetworkFlags>& flags) {
  CLI::App& measure = cli.AddCommand(
      group, "measure", "Probes the links between the workers' hosts, and describes what it finds",
      "  crossmesh network measure\n"
      "  crossmesh network measure --link-seconds 2 --link-bytes 10000000000 --json\n"
      "  crossmesh network measure --mesh 'data=2,model=4 on a.0-3,b.0-3' --axes data,model\n"
      "Every NIC sends to and receives from two others where there are that many. Racks stay as\n"
      "they were described. With --mesh it is gathers over groups of axes that are measured.\n");
  AddOption(measure, "--link-seconds", flags->link_seconds, "How long each link is filled")
      .Between(0.01, 10.0)
      .ShowDefault();
  AddOption(measure, "--link-bytes", flags->link_bytes,
            "The most that is sent over each, from 65536 to 2^36 (default 2^30)");
  AddOption(measure, "--mesh", flags->axes.mesh,
            "Instead of links: all groups of axes over these devices, beside each other");
  AddOption(measure, "--axes", flags->axes.axes,
            "Of the mesh; without it, what any grid's axes may be over its devices")
      .SplitAt(',');
  AddOption(measure, "--gather-bytes", flags->axes.gather_bytes,
            "What a device of a group gathers; the other size is a sixteenth")
      .ShowDefault();
  cli.Run(measure, [&cli, flags] { return Measure(cli, *flags); });
  cli.AddControllerFlags(measure);
}

}  // namespace

void AddNetworkCommands(Cli& cli, CLI::App& app) {
  CLI::App& group =
      cli.AddGroup(app, "network", "Shows, sets and measures the network that plans are made for");
  const auto flags = std::make_shared<NetworkFlags>();

  CLI::App& show = cli.AddCommand(group, "show", "Shows hosts, NICs and racks",
                                  "  crossmesh network show\n"
                                  "  crossmesh network show --as-file > network.json\n"
                                  "  crossmesh network show --as-rates > rates.json\n");
  AddFlag(show, "--as-file", flags->as_file, "Print the file that `set` reads");
  AddFlag(show, "--as-rates", flags->as_rates,
          "Print what was measured over axes, for --rates of `grid`");
  cli.AddOutputFlag(show);
  cli.Run(show, [&cli, flags] { return Show(cli, *flags); });

  CLI::App& set = cli.AddCommand(group, "set", "Describes the network from now on",
                                 "  crossmesh network set network.json\n"
                                 "  crossmesh network set --revision 3 network.json --json\n");
  AddOption(set, "file", flags->file, "Network file; - is standard input").Required();
  AddOption(set, "--revision", flags->revision, "Only if this is still the current revision");
  cli.Run(set, [&cli, flags] { return Set(cli, *flags); });

  CLI::App& preset = cli.AddCommand(
      group, "preset", "Prints the network file of hosts as they are sold",
      "  crossmesh network preset h100x8 node-a node-b > network.json\n"
      "  crossmesh network preset h100x8 node-a node-b | crossmesh network set -\n"
      "Rates are the makers'. NICs are nic0, nic1, ...: rename them as the hosts have them.\n");
  AddOption(preset, "preset", flags->preset, absl::StrJoin(GpuHostPresets(), ", ")).Required();
  AddOption(preset, "hosts", flags->hosts, "Names of all hosts of this kind").Required();
  cli.Run(preset, [&cli, flags] { return Preset(cli, *flags); });

  CLI::App& describe = cli.AddCommand(
      group, "describe", "Prints the network file of the workers' hosts that have GPUs",
      "  crossmesh network describe > network.json\n"
      "  crossmesh network describe | crossmesh network set -\n"
      "NICs are those that are up, with the speed that they say; each GPU has the nearest one, "
      "and\n"
      "its links by its model, as many as are up. What was measured is not kept: see\n"
      "crossmesh network show.\n");
  cli.Run(describe, [&cli] { return Describe(cli); });

  AddMeasure(cli, group, flags);
  for (CLI::App* command : {&show, &set, &describe}) cli.AddControllerFlags(*command);
}

}  // namespace crossmesh
