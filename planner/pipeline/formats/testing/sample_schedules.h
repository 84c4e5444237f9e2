#pragma once

#include "common/plan/testing/random_source.h"
#include "planner/pipeline/formats/shape.h"
#include "planner/pipeline/schedule.h"

#include <ostream>
#include <string>
#include <vector>

namespace crossmesh {

// A schedule for tests, with the shape that it is for.
struct SampleSchedule {
  std::string name;
  PipelineShape shape;
  Schedule schedule;

  bool is_chain() const { return shape.edges == ChainOf(schedule.stages); }
};

inline std::ostream& operator<<(std::ostream& out, const SampleSchedule& sample) {
  return out << sample.name << "\n" << ToString(sample.schedule);
}

// One of each published schedule with random counts, with full backward ops and, where it has some,
// with delayed gradients of the weights; and a random one with skip connections.
std::vector<SampleSchedule> SampleSchedules(RandomSource& random);

}  // namespace crossmesh
