#pragma once

#include "planner/layers/planned_layers.h"

#include <memory>
#include <span>
#include <string>

namespace crossmesh {

// A step on a grid as it is predicted, with what it stands under.
struct DrawnLayers {
  std::string title;
  std::shared_ptr<const PlannedLayers> planned;  // of a program that MakeGridProgram has made
};

// Steps to be drawn one below the other on one scale of time, as DrawPicture takes them: for each
// rank what it computes and what moves beside that, by what it is for. Cost: ops and messages.
std::string LayersPicture(std::span<const DrawnLayers> drawn);

}  // namespace crossmesh
