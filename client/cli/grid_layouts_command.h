#pragma once

namespace CLI {
class App;
}  // namespace CLI

namespace crossmesh {

class Cli;

// Adds `layouts`: how a model's parameters lie on a grid, as rules for other commands.
void AddGridLayoutsCommand(Cli& cli, CLI::App& group);

}  // namespace crossmesh
