#pragma once

#include "common/base/status_macros.h"
#include "common/wire/object_name.h"

#include <cstdint>
#include <iterator>

#include <absl/status/status.h>
#include <absl/status/statusor.h>
#include <absl/strings/escaping.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/string_view.h>

namespace crossmesh {

inline constexpr int32_t kPageSizeDefault = 100;
inline constexpr int32_t kPageSizeMax = 1000;

// InvalidArgument unless `page_size` is from 0, which stands for the default, to kPageSizeMax.
inline absl::StatusOr<int32_t> PageSize(int32_t page_size) {
  if (page_size == 0) return kPageSizeDefault;
  if (page_size > 0 && page_size <= kPageSizeMax) return page_size;
  return absl::InvalidArgumentError(
      absl::StrCat("page_size: expected 0 to ", kPageSizeMax, ", found ", page_size));
}

// Page tokens are the last name of the page before: names have no secrets, and pages survive
// changes. InvalidArgument: `token` is none; `is_name`: it has the form of what is listed.
inline absl::Status CheckPageToken(absl::string_view token, bool is_name) {
  if (token.empty() || is_name) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("page_token: expected that of the page before, found \"",
                   absl::CHexEscape(token.substr(0, 80)), "\""));
}

// Answers a request for a page of a RecordTable: `add` puts an object into the response.
template <typename Table, typename Request, typename Response, typename Add>
absl::Status ListObjects(Table& table, const Request& request, Response& response, Add add) {
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  RETURN_IF_ERROR(CheckPageToken(request.page_token(), IsObjectName(request.page_token())));
  ASSIGN_OR_RETURN(const auto objects, table.List(request.page_token(), limit));
  for (const auto& object : objects) add(object);
  if (std::ssize(objects) == limit) response.set_next_page_token(objects.back().name);
  return absl::OkStatus();
}

// The same of a JobRegistry, newest first.
template <typename Registry, typename Request, typename Response, typename Add>
absl::Status ListRuns(const Registry& registry, const Request& request, Response& response,
                      Add add) {
  ASSIGN_OR_RETURN(const int32_t limit, PageSize(request.page_size()));
  RETURN_IF_ERROR(CheckPageToken(request.page_token(), registry.IsId(request.page_token())));
  const auto runs = registry.List(request.page_token(), limit);
  for (const auto& run : runs) add(*run);
  if (std::ssize(runs) == limit) response.set_next_page_token(runs.back()->id());
  return absl::OkStatus();
}

}  // namespace crossmesh
