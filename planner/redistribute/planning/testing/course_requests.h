// Redistributions as requests for plans that workers can carry out.

#pragma once

#include "common/mesh/data_type.h"
#include "common/plan/plan.h"
#include "planner/redistribute/planning/course_draft.h"
#include "planner/redistribute/redistribution_request.h"
#include "planner/reshard/plan_reshard.h"

#include <cstdint>
#include <optional>

#include <absl/status/statusor.h>

namespace crossmesh {

struct CourseRequest {
  ReshardRequest request;
  CourseSizes sizes;
};

// What changes its layout.
struct CourseTensors {
  int64_t devices_of_host = 1;
  int32_t tensors = 1;
  DataType type = DataType::kF32;
};

// The same change of layout of these tensors. The mesh has an axis for each part of an axis that
// the request needs, so all parts are axes.
CourseRequest RequestOf(const RedistributionRequest& redistribution, const CourseTensors& tensors);

struct RandomCourseLimits {
  int64_t devices_max = 16;                     // of a mesh
  std::optional<DataType> type = std::nullopt;  // nothing: by chance
  bool gpus = false;                            // all devices are GPUs of hosts "h100x8"
};

// A few tensors whose meshes, two ends and types are by chance, from the seed alone. If `partial`,
// they have one mesh, up to two shapes and, in most cases, partial sums, of F32 or I32; else there
// may be tensors of another mesh, with other layouts, of another type. Without sums most go by a
// method of the literature, as the search would mostly find one step. Sizes are so small that there
// are many instances, or so large that there is one.
CourseRequest RandomCourseRequest(uint64_t seed, bool partial,
                                  const RandomCourseLimits& limits = {});

// The request for devices that are GPUs, and that keep to relays.
void PutOnGpus(ReshardRequest& request);

// A gather of all, or, if `sums`, sums of all in parts or whole in any order, of eight GPUs of one
// to four hosts whose costs are such that collectives are predicted to be faster than relays. Mesh,
// shapes, type (but where it is given) and the number of tensors are by chance, from the seed
// alone.
CourseRequest RandomCollectiveRequest(uint64_t seed, bool sums,
                                      std::optional<DataType> type = std::nullopt);
// The same over one or two axes of a mesh of two or three, so in groups of two or four; of gathers
// some have replicas, and some a tensor on half of the devices beside.
CourseRequest RandomGroupedRequest(uint64_t seed, bool sums);

// Sums of all of eight GPUs of two hosts, in parts or whole, that are made axis by axis: first of
// groups on one axis, then, of these sums, on the other one.
CourseRequest TwoLevelSums(bool in_pieces);

// Each of up to four hosts h0, h1, ... has a GPU, of index 0, and host memory, of index 1; all
// other devices are host memory.
void PutOnMixedHosts(ReshardRequest& request);

// As RandomCourseRequest on such hosts, and without sums by a method of the literature, which may
// be Unimplemented, but takes more steps. Of most requests GPUs and host memory are replicas of
// each other, on the last axis, so that all GPUs may go over a communicator.
CourseRequest RandomMixedRequest(uint64_t seed, bool partial);

// Sums, means, minima or maxima, in parts or whole, of one to four tensors of one type and up to
// two shapes on three to six hosts whose ports are so slow that sums go round a ring of these,
// where their type lets them. Mesh, shapes and sizes are by chance, from the seed alone.
CourseRequest RandomSumRingRequest(uint64_t seed);

// The plan of it.
absl::StatusOr<Plan> PlanOf(const CourseRequest& request);

}  // namespace crossmesh
