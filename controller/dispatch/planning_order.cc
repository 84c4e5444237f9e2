#include "controller/dispatch/planning_order.h"

#include "common/base/status_macros.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

absl::Status TooMany(int64_t waiting, absl::string_view of, int64_t most) {
  return absl::ResourceExhaustedError(absl::StrCat("planner: ", waiting, " requests of ", of,
                                                   " wait already, expected at most ", most));
}

}  // namespace

absl::Status PlanningOrder::CheckRoom(const std::string& name) const {
  if (size_ >= kWaitingMax) return TooMany(size_, "all clients", kWaitingMax);
  const auto client = std::ranges::find(clients_, name, &Client::name);
  if (client == clients_.end() || std::ssize(client->requests) < kWaitingOfClientMax) {
    return absl::OkStatus();
  }
  return TooMany(std::ssize(client->requests), "this client", kWaitingOfClientMax);
}

absl::Status PlanningOrder::Add(Waiting& waiting) {
  RETURN_IF_ERROR(CheckRoom(waiting.request.client));
  auto client = std::ranges::find(clients_, waiting.request.client, &Client::name);
  if (client == clients_.end()) {
    client = clients_.insert(client, Client{.name = waiting.request.client});
  }
  client->requests.push_back(std::move(waiting));
  ++size_;
  return absl::OkStatus();
}

std::optional<PlanningOrder::Waiting> PlanningOrder::Next(bool long_too) {
  for (auto client = clients_.begin(); client != clients_.end(); ++client) {
    const auto chosen = Choose(*client, long_too);
    if (chosen == client->requests.end()) continue;
    for (auto older = client->requests.begin(); older != chosen; ++older) ++older->overtaken;
    Waiting next = std::move(*chosen);
    client->requests.erase(chosen);
    --size_;
    if (client->requests.empty()) {
      clients_.erase(client);
    } else {
      clients_.splice(clients_.end(), clients_, client);
    }
    return next;
  }
  return std::nullopt;
}

std::deque<PlanningOrder::Waiting>::iterator PlanningOrder::Choose(Client& client, bool long_too) {
  auto chosen = client.requests.end();
  for (auto request = client.requests.begin(); request != client.requests.end(); ++request) {
    if (request->is_long() && !long_too) continue;
    if (request->overtaken >= kOvertakenMax) return request;
    if (chosen == client.requests.end() || request->request.cost < chosen->request.cost)
      chosen = request;
  }
  return chosen;
}

}  // namespace crossmesh
