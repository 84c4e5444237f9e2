#include "worker/executor/task_context.h"

#include "worker/executor/source_scales.h"

namespace crossmesh {

Ticket TaskContext::AddTransfer(const TransferSubject& subject) {
  ++transfers_open;
  return shared.transfers.Add(owner, subject);
}

void TaskContext::RemoveTransfer(Ticket ticket) {
  shared.transfers.Remove(ticket);
  --transfers_open;
}

MessageHeader TaskContext::HeaderFor(const PreparedPart::Channel& channel, MessageKind kind,
                                     uint64_t sequence) const {
  return {.token_high = spec.token_high,
          .token_low = spec.token_low,
          .operation = spec.key.operation,
          .epoch = spec.key.epoch,
          .plan = spec.key.plan,
          .instance = spec.key.instance,
          .channel = static_cast<uint32_t>(channel.id),
          .kind = static_cast<uint32_t>(kind),
          .sequence = sequence};
}

namespace {

TileCursor CursorOf(const absl::flat_hash_map<DeviceRank, BoundTiles>& bindings, const TileMap& map,
                    DeviceRank device) {
  static const BoundTiles* const unbound = new BoundTiles;
  const auto found = bindings.find(device);
  return TileCursor(map, found == bindings.end() ? *unbound : found->second);
}

}  // namespace

TileCursor TaskContext::SourceCursor(DeviceRank device) const {
  const TileMap& map = part.tiles(Side::kSource, device);
  if (const DeviceScales* of_device = scales.Find(device)) return TileCursor(map, *of_device);
  return CursorOf(spec.sources, map, device);
}

TileCursor TaskContext::DestinationCursor(DeviceRank device) const {
  return CursorOf(spec.destinations, part.tiles(Side::kDestination, device), device);
}

}  // namespace crossmesh
