#pragma once

#include "crossmesh/v1/pipeline_service.pb.h"
#include "planner/layers/layer_program.h"
#include "planner/parallelism/grid.h"
#include "planner/parallelism/grid_shape.h"
#include "planner/parallelism/step_model.h"

#include <string>

#include <nlohmann/json.hpp>

namespace crossmesh {

// What rehearsals of grids say of the cost model by which these were ranked: for each axis how long
// its collectives took, and how long ops did, beside what the model says; and what to change where
// they are far apart. Thread-compatible.
class TuneFindings {
 public:
  // `step` must outlive it.
  explicit TuneFindings(const StepModel& step) : step_(step) {}

  // A rehearsal of the program of a grid.
  void Add(const GridShape& shape, const LayerProgram& program,
           const v1::PipelineMeasurement& measurement);

  // "" if nothing was rehearsed.
  std::string Text() const;
  // A list of {"of": axis or "ops", "modelled_seconds", "measured_seconds"}, and "rates" of an
  // axis: the sources of those that grids had.
  nlohmann::json Document() const;

 private:
  // Of all grids together; of a rank, in a step.
  struct Times {
    double modelled = 0;
    double measured = 0;
    bool is_measured = true;  // the rates of all grids
    bool is_off() const;
  };
  std::string Change(GridAxis axis) const;

  const StepModel& step_;
  PerAxis<Times> of_axis_;
  Times of_ops_;
};

}  // namespace crossmesh
