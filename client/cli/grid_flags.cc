#include "client/cli/grid_flags.h"

#include "client/cli/cli.h"
#include "client/cli/options.h"
#include "common/base/count_text.h"
#include "common/base/error_place.h"
#include "common/base/status_macros.h"
#include "common/mesh/gpu_host.h"
#include "common/mesh/mesh.h"
#include "common/mesh/topology_file.h"
#include "planner/parallelism/network_rates.h"
#include "planner/parallelism/product_table.h"
#include "planner/parallelism/published/published_models.h"
#include "planner/parallelism/transformer_file.h"

#include <iterator>
#include <utility>

#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

constexpr int64_t kDevicesMax = 65536;

struct OverlapFlag {
  absl::string_view name;
  bool Overlaps::* overlap = nullptr;
};
constexpr OverlapFlag kOverlapFlags[] = {{"oar", &Overlaps::input_gradients},
                                         {"ors", &Overlaps::weight_gradients},
                                         {"oag", &Overlaps::weight_gathers},
                                         {"backward_gathers", &Overlaps::backward_gathers},
                                         {"split_batch", &Overlaps::split_batch}};

// Hosts g0, g1, ... of a preset, as many as have so many GPUs.
absl::StatusOr<std::pair<std::vector<DeviceId>, Topology>> GpusOf(const std::string& preset,
                                                                  int64_t count) {
  ASSIGN_OR_RETURN(const Host host, At("--gpu-host", GpuHost(preset, "g0")));
  const auto per_host = static_cast<int64_t>(host.gpus.size());
  std::vector<std::string> names;
  std::vector<DeviceId> devices;
  for (int64_t device = 0; device < count; ++device) {
    if (device % per_host == 0) names.push_back(absl::StrCat("g", names.size()));
    devices.push_back({names.back(), static_cast<int32_t>(device % per_host)});
  }
  ASSIGN_OR_RETURN(Topology topology, At("--gpu-host", GpuHosts(preset, names)));
  return std::pair(std::move(devices), std::move(topology));
}

std::string DevicesText(int64_t count) { return CountText(count, "device", "devices"); }

}  // namespace

void GridFlags::AddModelTo(CLI::App& command) {
  AddOption(command, "--model", model_,
            "A model's config.json of Hugging Face, or one of the literature: GPT-5B to GPT-640B, "
            "22B, 175B, 530B, 1T");
  AddOption(command, "--layers", layers_, "Blocks, where there is no --model").NotNegative();
  AddOption(command, "--hidden", hidden_, "Width").NotNegative();
  AddOption(command, "--heads", heads_, "Of attention").NotNegative();
  AddOption(command, "--kv-heads", kv_heads_, "Of keys and values; without it, all heads")
      .NotNegative();
  AddOption(command, "--feed-forward", feed_forward_, "Inner width; without it, 4 times --hidden")
      .NotNegative();
  AddOption(command, "--vocabulary", vocabulary_, "Without it, embedding and logits are left out")
      .NotNegative();
}

void GridFlags::AddTrainingTo(CLI::App& command) {
  AddOption(command, "--batch", batch_, "Sequences of a step").Required();
  AddOption(command, "--sequence", sequence_, "Tokens of a sequence").Required();
  AddOption(command, "--microbatch", microbatch_,
            "Sequences of a microbatch on a device; without it, the best that fits");
  AddOption(command, "--activations", activations_, "How they lie between layers")
      .OneOf({"replicated", "scattered"})
      .ShowDefault();
  AddFlag(command, "--keep-gathered", keep_gathered_,
          "Scattered activations: keep gathered inputs for the backward pass");
  AddOption(command, "--vectors", vectors_,
            "Scattered activations: where norms and biases lie; diagonal needs c = r")
      .OneOf({"replicated", "diagonal"})
      .ShowDefault();
  AddOption(command, "--recompute", recompute_, "What the backward pass computes again")
      .OneOf({"none", "selective", "full"})
      .ShowDefault();
  AddFlag(command, "--store-scores", store_scores_, "Attention without a flash kernel");
  AddOption(command, "--schedule", schedule_, "Of pipelines")
      .OneOf({"gpipe", "1f1b", "eager_1f1b", "interleaved_1f1b", "zb_h1"})
      .ShowDefault();
  AddOption(command, "--chunks", chunks_, "Stages of a rank, of interleaved_1f1b");
  AddOption(command, "--context-method", context_, "How parts of sequences see each other")
      .OneOf({"ring", "all_gather", "ulysses"})
      .ShowDefault();
  AddOption(command, "--imbalance", imbalance_,
            "Tokens of the busiest device of experts, over the mean");
  AddOption(command, "--zero", zero_, "What data cuts: 1 moments, 2 gradients, 3 weights");
  AddOption(command, "--cached-layers", cached_layers_,
            "Layers of a device whose gathered weights stay for the backward pass");
  AddOption(command, "--overlaps", overlaps_,
            "oar (sums of input gradients), ors (scatters), oag (gathers ahead), backward_gathers, "
            "split_batch, or none")
      .SplitAt(',')
      .OneOf({"oar", "ors", "oag", "backward_gathers", "split_batch", "none"});
  AddOption(command, "--pending-scatters", pending_scatters_,
            "Gradients of a matrix whose scatters may be under way at once; without it, programs "
            "choose, and memory has 1");
  AddOption(command, "--order", order_,
            "Axes from neighbours on; without it c,r,z,context,expert,pipeline,data");
}

void GridFlags::AddNetworkTo(CLI::App& command) {
  AddOption(command, "--device", device_, "What computes: a100, gh200, h100, mi250x").ShowDefault();
  AddOption(command, "--products", products_,
            "JSON file of measured products, in the place of the device's law");
  AddOption(
      command, "--overlap-slowdown", overlap_slowdown_,
      "So many times longer computing takes beside collectives; that of Galvatron, unless given")
      .ShowDefault();
  AddOption(command, "--memory", memory_, "Bytes of a device, instead of what it is sold with");
  AddOption(command, "--flops", flops_, "FLOP/s of a device at its peak, instead of the maker's");
  AddOption(command, "--devices", devices_, "Devices in order, e.g. a.0-7,b.0-7");
  AddOption(command, "--topology", topology_, "Network file that describes them");
  AddOption(command, "--gpu-host", gpu_host_, "Instead: hosts as they are sold, e.g. h100x8");
  AddOption(command, "--cluster", cluster_,
            "Instead: a machine with published rates, e.g. perlmutter_measured");
  AddOption(command, "--count", count_, "So many devices of them").NotNegative();
  AddOption(command, "--rates", rates_, "JSON file of measured positions, in the place of others");
}

void GridFlags::AddTo(CLI::App& command) {
  AddModelTo(command);
  AddTrainingTo(command);
  AddNetworkTo(command);
}

void GridFlags::AddLimitsTo(CLI::App& command) {
  AddOption(command, "--most", most_, "Largest sizes of axes, e.g. r=8,pipeline=4").SplitAt(',');
}

absl::StatusOr<Transformer> GridFlags::ReadModel() const {
  if (model_.empty()) {
    if (layers_ == 0 || hidden_ == 0 || heads_ == 0) {
      return absl::InvalidArgumentError(
          "model: expected --model, or --layers, --hidden and --heads, found neither");
    }
    Transformer model = PlainTransformer("by flags", layers_, hidden_, heads_);
    if (kv_heads_ > 0) model.kv_heads = kv_heads_;
    if (feed_forward_ > 0) model.feed_forward = feed_forward_;
    model.vocabulary = vocabulary_;
    RETURN_IF_ERROR(Validate(model));
    return model;
  }
  if (layers_ != 0 || hidden_ != 0 || heads_ != 0 || kv_heads_ != 0 || feed_forward_ != 0 ||
      vocabulary_ != 0) {
    return absl::InvalidArgumentError("model: expected --model or the sizes of one, found both");
  }
  const absl::StatusOr<PublishedModel> published = FindPublishedModel(model_);
  if (published.ok()) return published->shape;
  const absl::StatusOr<std::string> text = ReadFile(model_);
  if (!text.ok()) return published.status();
  return ParseTransformerFile(model_, *text);
}

absl::StatusOr<Overlaps> GridFlags::ReadOverlaps() const {
  Overlaps overlaps = kNoOverlaps;
  for (const std::string& name : overlaps_) {
    for (const OverlapFlag& flag : kOverlapFlags) {
      if (flag.name == name) overlaps.*flag.overlap = true;
    }
    if (name == "none" && overlaps_.size() > 1) {
      return absl::InvalidArgumentError("--overlaps: expected none by itself, found others too");
    }
  }
  return overlaps;
}

absl::StatusOr<Training> GridFlags::ReadTraining() const {
  Training training{.batch = batch_,
                    .sequence = sequence_,
                    .microbatch = microbatch_,
                    .keep_gathered = keep_gathered_,
                    .flash_attention = !store_scores_,
                    .chunks = chunks_,
                    .expert_imbalance = imbalance_,
                    .zero = zero_,
                    .cached_layers = cached_layers_};
  if (pending_scatters_) training.pending_scatters = *pending_scatters_;
  ASSIGN_OR_RETURN(training.activations, ParseActivationForm(activations_));
  ASSIGN_OR_RETURN(training.vectors, ParseVectorForm(vectors_));
  ASSIGN_OR_RETURN(training.recompute, ParseRecompute(recompute_));
  ASSIGN_OR_RETURN(training.schedule, ParseGridSchedule(schedule_));
  ASSIGN_OR_RETURN(training.context, ParseContextMethod(context_));
  ASSIGN_OR_RETURN(training.overlaps, ReadOverlaps());
  if (!order_.empty()) {
    ASSIGN_OR_RETURN(training.order, At("--order", ParseGridOrder(order_)));
  }
  return training;
}

absl::StatusOr<DeviceProfile> GridFlags::ReadDevice() const {
  ASSIGN_OR_RETURN(DeviceProfile device, At("--device", FindDevicePreset(device_)));
  if (memory_) device.memory_bytes = *memory_;
  if (flops_ != 0) device.flops_per_second = flops_;
  device.overlap_slowdown = overlap_slowdown_;
  if (products_.empty()) return device;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(products_));
  ASSIGN_OR_RETURN(device.products, ParseProductTable(products_, text));
  return device;
}

absl::StatusOr<const PublishedCluster*> GridFlags::ReadCluster() const {
  if (!devices_.empty() || !gpu_host_.empty() || cluster_.empty()) {
    return absl::InvalidArgumentError("network: expected --cluster with --count, found another");
  }
  if (count_ < 1 || count_ > kDevicesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("--count: expected 1 to ", kDevicesMax, ", found ", count_));
  }
  return At("--cluster", FindCluster(cluster_));
}

absl::StatusOr<DescribedDevices> GridFlags::ReadDescribedDevices() const {
  if (devices_.empty() || !gpu_host_.empty() || !cluster_.empty()) {
    return absl::InvalidArgumentError("network: expected --devices, with or without --topology");
  }
  DescribedDevices described;
  ASSIGN_OR_RETURN(described.devices, At("--devices", ParseDevices(devices_)));
  if (topology_.empty()) return described;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(topology_));
  ASSIGN_OR_RETURN(described.topology, At(topology_, ParseTopologyFile(text)));
  return described;
}

absl::StatusOr<GridFlags::Network> GridFlags::ReadDescribedNetwork() const {
  if (!gpu_host_.empty()) {
    if (count_ < 1 || count_ > kDevicesMax) {
      return absl::InvalidArgumentError(
          absl::StrCat("--count: expected 1 to ", kDevicesMax, ", found ", count_));
    }
    ASSIGN_OR_RETURN(const auto gpus, GpusOf(gpu_host_, count_));
    ASSIGN_OR_RETURN(PositionRates rates, RatesOfNetwork(gpus.first, gpus.second));
    return Network{std::move(rates), absl::StrCat(DevicesText(count_), " of hosts ", gpu_host_)};
  }
  ASSIGN_OR_RETURN(const DescribedDevices described, ReadDescribedDevices());
  const auto& [devices, topology] = described;
  ASSIGN_OR_RETURN(PositionRates rates, At("--devices", RatesOfNetwork(devices, topology)));
  return Network{
      std::move(rates),
      absl::StrCat(DevicesText(std::ssize(devices)), ", ",
                   topology_.empty() ? "hosts with one NIC of 100 Gbit/s, assumed" : topology_)};
}

absl::StatusOr<GridFlags::Network> GridFlags::ReadNetwork() const {
  const int given =
      (devices_.empty() ? 0 : 1) + (gpu_host_.empty() ? 0 : 1) + (cluster_.empty() ? 0 : 1);
  if (given != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("network: expected one of --devices, --gpu-host and --cluster, found ",
                     given == 0 ? "none" : "several"));
  }
  if (!devices_.empty() && count_ > 0) {
    return absl::InvalidArgumentError(
        "--count: expected with --gpu-host or --cluster, found "
        "--devices, which says how many there are");
  }
  if (cluster_.empty()) return ReadDescribedNetwork();
  ASSIGN_OR_RETURN(const PublishedCluster* const cluster, ReadCluster());
  ASSIGN_OR_RETURN(PositionRates rates, RatesOfCluster(*cluster, count_));
  return Network{std::move(rates), absl::StrCat(DevicesText(count_), " of ", cluster_)};
}

absl::StatusOr<GridLimits> GridFlags::ReadLimits() const {
  GridLimits limits;
  for (const std::string& entry : most_) {
    ASSIGN_OR_RETURN(const Grid sizes, At("--most", ParseGrid(entry)));
    const std::vector<std::string> sides = absl::StrSplit(entry, '=');
    ASSIGN_OR_RETURN(const GridAxis axis, At("--most", ParseGridAxis(sides.front())));
    limits.most[axis] = sizes[axis];
  }
  return limits;
}

absl::StatusOr<std::vector<DeviceId>> GridFlags::ReadDevices() const {
  if (devices_.empty() || !topology_.empty() || !gpu_host_.empty() || !cluster_.empty()) {
    return absl::InvalidArgumentError(
        "network: expected --devices alone, on the network that the controller knows");
  }
  return At("--devices", ParseDevices(devices_));
}

absl::StatusOr<GridRequest> GridFlags::ReadOn(const Topology& topology,
                                              const std::optional<MeasuredAxes>& axes) const {
  ASSIGN_OR_RETURN(const std::vector<DeviceId> devices, ReadDevices());
  std::vector<MeasuredPosition> measured;
  std::string text = absl::StrCat(DevicesText(std::ssize(devices)), " of the cluster");
  if (axes.has_value() && axes->devices() == devices) {
    measured = axes->positions();
    absl::StrAppend(&text, ", ", CountText(std::ssize(measured), "position", "positions"),
                    " measured");
  } else if (axes.has_value()) {
    absl::StrAppend(&text, ", axes were measured over ", DevicesToString(axes->devices()));
  }
  ASSIGN_OR_RETURN(PositionRates rates,
                   At("--devices", RatesOfNetwork(devices, topology, measured)));
  return ReadWith({std::move(rates), std::move(text)});
}

absl::StatusOr<GridRequest> GridFlags::Read() const {
  ASSIGN_OR_RETURN(Network network, ReadNetwork());
  return ReadWith(std::move(network));
}

absl::StatusOr<GridRequest> GridFlags::ReadWith(Network network) const {
  ASSIGN_OR_RETURN(Transformer model, ReadModel());
  ASSIGN_OR_RETURN(const Training training, ReadTraining());
  ASSIGN_OR_RETURN(DeviceProfile device, ReadDevice());
  if (!rates_.empty()) {
    ASSIGN_OR_RETURN(const std::string text, ReadFile(rates_));
    ASSIGN_OR_RETURN(const std::vector<MeasuredPosition> measured,
                     ParseMeasuredPositions(rates_, text));
    ASSIGN_OR_RETURN(network.rates, At(rates_, WithMeasured(network.rates, measured)));
  }
  ASSIGN_OR_RETURN(GridLimits limits, ReadLimits());
  ASSIGN_OR_RETURN(StepModel step, StepModel::Create(std::move(model), training, std::move(device),
                                                     std::move(network.rates)));
  return GridRequest{std::move(step), limits, std::move(network.text), !pending_scatters_};
}

}  // namespace crossmesh
