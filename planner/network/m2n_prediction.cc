#include "planner/network/m2n_prediction.h"

#include "planner/network/gpu_costs.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <span>
#include <vector>

namespace crossmesh {
namespace {

int64_t CopiesOf(const M2nSide& side) { return side.ranks() / side.parts(); }

DeviceRank RankOf(const M2nSide& side, int64_t part, int64_t copy) {
  const bool parts_first = side.placements.front() != M2nSide::kReplicate;
  const int64_t place = parts_first ? part * CopiesOf(side) + copy : copy * side.parts() + part;
  return side.first_rank + static_cast<DeviceRank>(place);
}

// The dimension that is cut, or kReplicate.
int32_t CutOf(const M2nSide& side) { return std::ranges::max(side.placements); }

int64_t Elements(const M2nSide& side) {
  return std::accumulate(side.local_shape.begin(), side.local_shape.end(), int64_t{1},
                         std::multiplies<>());
}

// Of `items` in so many shares, the first ones longer by one where they are uneven.
Interval ShareOf(int64_t items, int64_t shares, int64_t share) {
  const int64_t each = items / shares, longer = items % shares;
  const int64_t begin = share * each + std::min(share, longer);
  return {begin, begin + each + (share < longer ? 1 : 0)};
}
int64_t ShareWith(int64_t items, int64_t shares, int64_t item) {
  const int64_t each = items / shares, longer = items % shares;
  const int64_t of_longer = longer * (each + 1);
  return item < of_longer ? item / (each + 1) : longer + (item - of_longer) / each;
}

struct DeviceWork {
  int64_t nic_out = 0;
  int64_t nic_in = 0;
  int64_t link_out = 0;
  int64_t link_in = 0;
  int64_t packed = 0;
  int64_t unpacked = 0;
  int64_t pack_copies = 0;
  int64_t unpack_copies = 0;
};

double Seconds(int64_t bytes, int64_t rate) {
  return bytes == 0 ? 0 : static_cast<double>(bytes) / static_cast<double>(rate);
}

bool SameTopology(const M2nTransfer& a, const M2nTransfer& b) {
  const auto same = [](const M2nSide& x, const M2nSide& y) {
    return x.mesh == y.mesh && x.placements == y.placements && x.first_rank == y.first_rank;
  };
  return same(a.source, b.source) && same(a.destination, b.destination);
}

// Of all tensors of one topology.
class M2nBatch {
 public:
  M2nBatch(const GpuNetwork& network, const M2nTransfer& topology)
      : network_(network),
        topology_(topology),
        // Whether copy engines put, instead of a kernel that sends and forwards.
        by_copy_engines_(network.hosts.hosts.size() == 1 &&
                         topology.source.first_rank < topology.destination.first_rank &&
                         std::ssize(network.host_of) <= gpu_costs::kM2nDirectRanks),
        devices_(network.host_of.size()) {}

  bool Takes(const M2nTransfer& transfer) const { return SameTopology(topology_, transfer); }

  void Add(const M2nTensors& tensors) {
    const auto& [source, destination] = tensors.transfer;
    const int64_t bytes = tensors.item_bytes * tensors.tensors;
    buffer_bytes_ += bytes * std::max(Elements(source), Elements(destination));
    const bool cut_alike = CutOf(source) == CutOf(destination) && CutOf(source) >= 0;
    for (int64_t part = 0; part < destination.parts(); ++part) {
      Interval sources = {0, source.parts()};
      if (!cut_alike) {
        const int64_t pair_bytes = bytes * Elements(source) / destination.parts();
        for (int64_t s = 0; s < sources.end; ++s) Send({part, s, sources, pair_bytes}, tensors);
        continue;
      }
      const int64_t length = destination.local_shape[CutOf(destination)];
      const int64_t source_length = source.local_shape[CutOf(source)];
      const int64_t row_bytes = bytes * Elements(source) / source_length;
      const Interval wanted = {part * length, (part + 1) * length};
      sources = {wanted.begin / source_length, (wanted.end - 1) / source_length + 1};
      for (int64_t s = sources.begin; s < sources.end; ++s) {
        const Interval met = Intersect(wanted, {s * source_length, (s + 1) * source_length});
        Send({part, s, sources, row_bytes * met.length()}, tensors);
      }
    }
  }

  double PredictSeconds() const {
    double pack = 0, move = 0, unpack = 0;
    for (size_t d = 0; d < devices_.size(); ++d) {
      const DeviceWork& work = devices_[d];
      pack = std::max(pack, CopySeconds(d, work.packed, work.pack_copies));
      move = std::max(move, MoveSeconds(d, work));
      unpack = std::max(unpack, CopySeconds(d, work.unpacked, work.unpack_copies));
    }
    const int64_t batches =
        (buffer_bytes_ + M2nTransfer::kTileBytesMax - 1) / M2nTransfer::kTileBytesMax;
    return pack + move + unpack +
           static_cast<double>(batches) * (gpu_costs::kM2nBatchSeconds + on_the_way_seconds_);
  }

 private:
  // A part of the source that meets one of the destination, and all that meet the latter.
  struct Meeting {
    int64_t part = 0;
    int64_t source_part = 0;
    Interval sources;
    int64_t bytes = 0;
  };

  // To all copies of the destination part.
  void Send(const Meeting& meeting, const M2nTensors& tensors) {
    const auto& [part, source_part, sources, bytes] = meeting;
    const auto& [source, destination] = tensors.transfer;
    const int64_t senders = std::min(CopiesOf(source), CopiesOf(destination));
    for (int64_t sender = 0; sender < senders; ++sender) {
      // Where there are more senders than copies, the first of each share sends.
      const bool has_share_each = CopiesOf(source) <= CopiesOf(destination);
      const int64_t source_copy =
          has_share_each ? sender : ShareOf(CopiesOf(source), senders, sender).begin;
      const Interval copies = ShareOf(CopiesOf(destination), senders, sender);
      const DeviceRank from = RankOf(source, source_part, source_copy);
      devices_[from].packed += bytes;
      devices_[from].pack_copies += tensors.tensors;
      std::vector<DeviceRank> to;
      for (int64_t c = copies.begin; c < copies.end; ++c) {
        to.push_back(RankOf(destination, part, c));
        devices_[to.back()].unpacked += bytes;
        devices_[to.back()].unpack_copies += tensors.tensors;
      }
      by_copy_engines_ ? Put(from, to, bytes)
                       : Forward(from, to, {source_part - sources.begin, sources.length()}, bytes);
    }
  }

  void Put(DeviceRank from, std::span<const DeviceRank> to, int64_t bytes) {
    for (const DeviceRank copy : to) Move(from, copy, bytes);
  }

  // Which of how many.
  struct Place {
    int64_t number = 0;
    int64_t of = 1;
  };

  // `place` is that of the source part among those that meet this destination part: they are dealt
  // to the copies of a host.
  void Forward(DeviceRank from, std::span<const DeviceRank> to, Place place, int64_t bytes) {
    double seconds = 0;
    while (!to.empty()) {
      const HostRank host = network_.host_of[to.front()];
      const auto end =
          std::ranges::find_if(to, [&](DeviceRank d) { return network_.host_of[d] != host; });
      const auto here = to.first(end - to.begin());
      const DeviceRank leader = here[ShareWith(place.of, std::ssize(here), place.number)];
      Move(from, leader, bytes);
      seconds += OnTheWay(from, leader);
      for (const DeviceRank copy : here) {
        if (copy != leader) Move(leader, copy, bytes);
      }
      from = leader;
      to = to.subspan(here.size());
    }
    on_the_way_seconds_ = std::max(on_the_way_seconds_, seconds);
  }

  // Of a piece, and of nothing else.
  double OnTheWay(DeviceRank from, DeviceRank to) const {
    if (network_.OnOneHost(from, to)) return 0;
    const int64_t rate =
        std::min(network_.nics.host_rates.out[from], network_.nics.host_rates.in[to]);
    return Seconds(gpu_costs::kM2nPieceBytes, rate) + network_.nics.LatencySeconds(from, to);
  }

  void Move(DeviceRank from, DeviceRank to, int64_t bytes) {
    const bool is_inside = network_.OnOneHost(from, to);
    (is_inside ? devices_[from].link_out : devices_[from].nic_out) += bytes;
    (is_inside ? devices_[to].link_in : devices_[to].nic_in) += bytes;
  }

  double CopySeconds(size_t device, int64_t bytes, int64_t copies) const {
    return std::max(Seconds(bytes, network_.copy_rates[device]),
                    static_cast<double>(copies) * gpu_costs::kM2nCopySeconds);
  }

  double MoveSeconds(size_t device, const DeviceWork& work) const {
    const PortRates& nics = network_.nics.host_rates;
    const PortRates& links = network_.links.host_rates;
    double seconds = std::max(
        {Seconds(work.nic_out, nics.out[device]), Seconds(work.nic_in, nics.in[device]),
         Seconds(work.link_out, links.out[device]), Seconds(work.link_in, links.in[device])});
    if (by_copy_engines_) return seconds;
    const auto channel = static_cast<double>(network_.costs.channel_bytes_per_second.value);
    const double kernel = gpu_costs::kM2nThreadBlocks * channel;
    return std::max(seconds, static_cast<double>(work.nic_out + work.link_out) / kernel);
  }

  const GpuNetwork& network_;
  const M2nTransfer topology_;
  const bool by_copy_engines_;
  std::vector<DeviceWork> devices_;
  int64_t buffer_bytes_ = 0;       // of the tiles of a device that has most
  double on_the_way_seconds_ = 0;  // of the last piece, on the longest way
};

}  // namespace

double PredictM2n(const GpuNetwork& network, std::span<const M2nTensors> tensors) {
  std::vector<M2nBatch> batches;
  for (const M2nTensors& alike : tensors) {
    const auto batch =
        std::ranges::find_if(batches, [&](const M2nBatch& r) { return r.Takes(alike.transfer); });
    (batch != batches.end() ? *batch : batches.emplace_back(network, alike.transfer)).Add(alike);
  }
  double seconds = 0;
  for (const M2nBatch& batch : batches) seconds += batch.PredictSeconds();
  return seconds;
}

}  // namespace crossmesh
