#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

class Cli;

// Adds `grid draw` to the group of commands about grids.
void AddGridDrawCommand(Cli& cli, CLI::App& group);

}  // namespace crossmesh
