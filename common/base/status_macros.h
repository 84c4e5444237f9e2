// Early return on errors:
//
//   RETURN_IF_ERROR(store.Delete(key));
//   ASSIGN_OR_RETURN(const Mesh mesh, catalog.GetMesh(id));

#pragma once

#include <utility>

#include <absl/base/optimization.h>
#include <absl/status/status.h>
#include <absl/status/statusor.h>

// Returns from the function if `expression`, an absl::Status, is not OK.
#define RETURN_IF_ERROR(expression)                                     \
  do {                                                                  \
    if (absl::Status status_or_ok = (expression); !status_or_ok.ok()) { \
      return status_or_ok;                                              \
    }                                                                   \
  } while (false)

// Declares or assigns `lhs` from `expression`, an absl::StatusOr, or returns its status from the
// function. Expands to several statements, so not for the branch of an `if` without braces. An
// `lhs` with a comma needs a type alias.
#define ASSIGN_OR_RETURN(lhs, expression) \
  CROSSMESH_ASSIGN_OR_RETURN_(CROSSMESH_STATUS_NAME_(__LINE__), lhs, expression)

#define CROSSMESH_ASSIGN_OR_RETURN_(result, lhs, expression) \
  auto result = (expression);                                \
  if (ABSL_PREDICT_FALSE(!result.ok())) {                    \
    return std::move(result).status();                       \
  }                                                          \
  lhs = *std::move(result)
#define CROSSMESH_STATUS_NAME_(line) CROSSMESH_STATUS_NAME_JOINED_(line)
#define CROSSMESH_STATUS_NAME_JOINED_(line) status_or_##line
