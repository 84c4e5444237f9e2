#pragma once

#include "common/plan/course.h"
#include "common/plan/plan.h"
#include "common/plan/tensor_table.h"
#include "planner/network/host_network.h"
#include "planner/network/port_load.h"

#include <span>

namespace crossmesh {

// What courses put on a network, and how long they are predicted to take.
struct CoursePrediction {
  double seconds = 0;
  PortLoad load;  // of all instances of all courses
};

// Courses run one after the other. The steps of several instances of one overlap, but those that
// use the same port share it: in the steady state an instance ends whenever its busiest port has
// carried what all its steps put there, and before that the pipeline fills, and drains, as long as
// one instance alone takes, step after step:
//
//   seconds = sum of the steps' predicted seconds + (instances - 1) * busiest port's seconds
//
// That is the makespan of equal jobs in a flow shop whose machines are ports, exact where no port
// is used by two steps. Buffers do not lengthen it: a step may begin while the one after it still
// reads the array of two instances before, and no step takes longer than its port.
//
// Example: two hosts that reduce and gather at 100 MB/s, each step 1 MB out of each host. An
// instance takes 20 ms, and so does its port, so 8 instances take 160 ms. Where the second step
// goes back over ports that the first leaves idle, they take 20 + 7 * 10 = 90 ms.
//
// `whole`: the table of the plan, with every device of the courses' tables; `network`: its. Cost:
// linear in the hops of all steps.
CoursePrediction PredictCourses(const TensorTable& whole, std::span<const Course<Plan>> courses,
                                const HostNetwork& network);

}  // namespace crossmesh
