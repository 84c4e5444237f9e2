#pragma once

#include "common/base/digest.h"
#include "common/base/digest_builder.h"
#include "common/plan/course.h"

#include <span>
#include <vector>

namespace crossmesh {

// Adds courses to the digest of what has them; nothing where there are none, so that all else keeps
// the digest that it had before there were courses. `digest_of`: of a step's move.
template <typename Move, typename DigestOf>
void AddCourses(const std::vector<Course<Move>>& courses, DigestOf digest_of,
                DigestBuilder& builder) {
  for (const Course<Move>& course : courses) {
    builder.AddText("course");
    builder.AddInts(course.instances, course.buffers, course.tensors.size(), course.steps.size());
    builder.AddBytes(std::as_bytes(std::span(course.tensors)));
    if (course.releases_source) builder.AddText("releases source");
    for (const auto& step : course.steps) {
      builder.AddDigest(digest_of(*step.move));
      if (step.collective.has_value()) {
        builder.AddText("collective");
        builder.AddInts(*step.collective);
      }
      if (step.adds_own) builder.AddText("adds own");
      if (!step.reduction.has_value()) continue;
      builder.AddText("reduction");
      builder.AddInts(step.reduction->kind, step.reduction->divisor);
    }
  }
}

}  // namespace crossmesh
