#pragma once

#include <string>
#include <vector>

namespace crossmesh {

// What is said of a change of layout by steps: strategy redistribute.
struct RedistributionInputs {
  // Axes of the source mesh over which slots hold summands of one value, and axes of the
  // destination mesh over which they still do so afterwards; of all tensors.
  std::vector<std::string> source_partial;
  std::vector<std::string> destination_partial;
  std::string reduction;  // by name; may be empty, or no reduction's
  // "fixed" or "any": in which order summands are added; may be empty, where a plan may choose one
  // that is the same on every run, or neither.
  std::string reduction_order;
  // "time" or "bytes", whichever is to be least; may be empty, or neither.
  std::string objective;
  // By name, a method of the literature that finds the steps; may be empty, or none's.
  std::string method;
  bool no_relays = false;  // every step is a collective
  // The source is given up, and its memory given back while it is consumed.
  bool release_source = false;
};

}  // namespace crossmesh
