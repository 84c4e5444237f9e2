#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

class Cli;

// Adds `grid tune` to the group of commands about grids.
void AddGridTuneCommand(Cli& cli, CLI::App& group);

}  // namespace crossmesh
