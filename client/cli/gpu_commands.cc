#include "client/cli/cli.h"
#include "client/cli/network_report.h"
#include "client/cli/options.h"
#include "client/client.h"
#include "common/base/status_macros.h"

#include <memory>

namespace crossmesh {
namespace {

struct GpuFlags {
  bool keep_description = false;
};

absl::Status Calibrate(Cli& cli, const GpuFlags& flags) {
  v1::CalibrateGpusRequest request;
  request.set_keep_description(flags.keep_description);
  ASSIGN_OR_RETURN(Client client, cli.Connect());
  ASSIGN_OR_RETURN(const v1::CalibrateGpusResponse response, client.CalibrateGpus(request));
  return cli.Answer(response, CalibrationText(response));
}

}  // namespace

void AddGpuCommands(Cli& cli, CLI::App& app) {
  CLI::App& group = cli.AddGroup(app, "gpu", "Measures what GPUs cost, for predictions");
  const auto flags = std::make_shared<GpuFlags>();
  CLI::App& calibrate = cli.AddCommand(
      group, "calibrate",
      "Measures launches, messages, copies and links of the workers' GPUs, for the network",
      "  crossmesh gpu calibrate\n"
      "  crossmesh gpu calibrate --keep-description --json\n"
      "What was assumed until now is printed beside what was measured, which the network's next\n"
      "revision has. It takes the GPUs for some seconds: operations wait for it, and it for "
      "them.\n");
  AddFlag(calibrate, "--keep-description", flags->keep_description,
          "Only measure: the network's description stays what it is");
  cli.AddControllerFlags(calibrate);
  cli.Run(calibrate, [&cli, flags] { return Calibrate(cli, *flags); });
}

}  // namespace crossmesh
