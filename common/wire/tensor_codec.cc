#include "common/wire/tensor_codec.h"

#include "common/base/error_place.h"
#include "common/base/status_macros.h"

#include <string>
#include <utility>
#include <vector>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/match.h>
#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

// One rule in the text form of LayoutRules, which is one line: nothing in it may end the line, or
// turn into another part of it.
absl::StatusOr<std::string> RuleLine(const v1::LayoutRule& rule) {
  const auto refused = [&](absl::string_view expected) {
    return absl::InvalidArgumentError(
        absl::StrCat("layout rule of pattern \"", rule.pattern(), "\": expected ", expected));
  };
  const absl::string_view pattern = rule.pattern();
  if (pattern.empty() || absl::StartsWith(pattern, "#")) {
    return refused("a pattern that is not empty and does not begin with #");
  }
  for (const char c : pattern) {
    if (absl::ascii_isspace(c)) return refused("a pattern without spaces");
  }
  for (const std::string* text : {&rule.layout(), &rule.on(), &rule.dtype()}) {
    if (text->find_first_of("\n\r#") != std::string::npos) {
      return refused("a layout, coordinates and a data type on one line, without #");
    }
  }
  return absl::StrCat(pattern, " ", rule.layout(), rule.on().empty() ? "" : " on ", rule.on(),
                      rule.dtype().empty() ? "" : " as ", rule.dtype(), "\n");
}

}  // namespace

v1::TensorSpec ToProto(const TensorSpec& tensor) {
  v1::TensorSpec proto;
  proto.set_name(tensor.name);
  proto.set_dtype(std::string(DataTypeName(tensor.type)));
  for (const int64_t length : tensor.shape.lengths()) proto.add_shape(length);
  return proto;
}

absl::StatusOr<TensorSpec> FromProto(const v1::TensorSpec& proto) {
  const std::string where = absl::StrCat("tensor \"", proto.name(), "\"");
  ASSIGN_OR_RETURN(const DataType type, At(where, ParseDataType(proto.dtype())));
  const auto rank = static_cast<size_t>(proto.shape_size());
  ASSIGN_OR_RETURN(const Shape shape, At(where, Shape::Create({proto.shape().data(), rank})));
  return TensorSpec{.name = proto.name(), .type = type, .shape = shape};
}

v1::Manifest ToProto(const Manifest& manifest, absl::string_view name) {
  v1::Manifest proto;
  proto.set_name(std::string(name));
  for (const TensorSpec& tensor : manifest.tensors()) *proto.add_tensors() = ToProto(tensor);
  return proto;
}

absl::StatusOr<Manifest> FromProto(const v1::Manifest& proto) {
  std::vector<TensorSpec> tensors;
  tensors.reserve(proto.tensors_size());
  for (const v1::TensorSpec& tensor : proto.tensors()) {
    ASSIGN_OR_RETURN(tensors.emplace_back(), FromProto(tensor));
  }
  return Manifest::Create(std::move(tensors));
}

v1::Mesh ToProto(const Mesh& mesh, absl::string_view name) {
  v1::Mesh proto;
  proto.set_name(std::string(name));
  proto.set_axes(AxesToString(mesh.axes()));
  proto.set_devices(DevicesToString(mesh.devices()));
  return proto;
}

absl::StatusOr<Mesh> FromProto(const v1::Mesh& proto) {
  ASSIGN_OR_RETURN(std::vector<Axis> axes, ParseAxes(proto.axes()));
  ASSIGN_OR_RETURN(std::vector<DeviceId> devices, ParseDevices(proto.devices()));
  return Mesh::Create(std::move(axes), std::move(devices));
}

namespace {

void Write(const GpuCost& cost, v1::GpuCost& proto) {
  proto.set_value(cost.value);
  proto.set_source(cost.source);
}

std::string SourceOf(const std::string& proto) {
  return proto.empty() ? std::string(kAssumed) : proto;
}

v1::GpuCosts CostsToProto(const GpuCosts& costs) {
  v1::GpuCosts proto;
  Write(costs.launch_ns, *proto.mutable_launch_ns());
  Write(costs.group_ns, *proto.mutable_group_ns());
  Write(costs.message_ns, *proto.mutable_message_ns());
  Write(costs.channel_bytes_per_second, *proto.mutable_channel_bytes_per_second());
  return proto;
}

GpuCosts CostsFromProto(const v1::GpuCosts& proto) {
  GpuCosts costs;
  const auto read = [](bool is_there, const v1::GpuCost& from, GpuCost& to) {
    if (is_there) to = {.value = from.value(), .source = SourceOf(from.source())};
  };
  read(proto.has_launch_ns(), proto.launch_ns(), costs.launch_ns);
  read(proto.has_group_ns(), proto.group_ns(), costs.group_ns);
  read(proto.has_message_ns(), proto.message_ns(), costs.message_ns);
  read(proto.has_channel_bytes_per_second(), proto.channel_bytes_per_second(),
       costs.channel_bytes_per_second);
  return costs;
}

}  // namespace

v1::Topology ToProto(const Topology& topology) {
  v1::Topology proto;
  for (const Host& host : topology.hosts()) {
    v1::Host& host_proto = *proto.add_hosts();
    host_proto.set_name(host.name);
    for (const Nic& nic : host.nics) {
      v1::Nic& nic_proto = *host_proto.add_nics();
      nic_proto.set_name(nic.name);
      nic_proto.set_out_bytes_per_second(nic.out_bytes_per_second);
      nic_proto.set_in_bytes_per_second(nic.in_bytes_per_second);
      nic_proto.set_out_latency_ns(nic.out_latency_ns);
      nic_proto.set_in_latency_ns(nic.in_latency_ns);
    }
    for (const HostGpu& gpu : host.gpus) {
      v1::HostGpu& gpu_proto = *host_proto.add_gpus();
      gpu_proto.set_device(gpu.device);
      gpu_proto.set_nic(gpu.nic);
      gpu_proto.set_link_out_bytes_per_second(gpu.link_out_bytes_per_second);
      gpu_proto.set_link_in_bytes_per_second(gpu.link_in_bytes_per_second);
      gpu_proto.set_copy_bytes_per_second(gpu.copy_bytes_per_second);
      gpu_proto.set_link_source(gpu.link_source);
      gpu_proto.set_copy_source(gpu.copy_source);
    }
    host_proto.set_local_bytes_per_second(host.local_bytes_per_second);
  }
  for (const Rack& rack : topology.racks()) {
    v1::Rack& rack_proto = *proto.add_racks();
    rack_proto.set_name(rack.name);
    for (const std::string& host : rack.hosts) rack_proto.add_hosts(host);
    rack_proto.set_up_bytes_per_second(rack.up_bytes_per_second);
    rack_proto.set_down_bytes_per_second(rack.down_bytes_per_second);
  }
  proto.set_assumed_bytes_per_second(topology.assumed_bytes_per_second());
  *proto.mutable_gpu_costs() = CostsToProto(topology.gpu_costs());
  return proto;
}

absl::StatusOr<Topology> FromProto(const v1::Topology& proto) {
  std::vector<Host> hosts;
  for (const v1::Host& host_proto : proto.hosts()) {
    Host& host = hosts.emplace_back();
    host.name = host_proto.name();
    for (const v1::Nic& nic : host_proto.nics()) {
      host.nics.push_back({.name = nic.name(),
                           .out_bytes_per_second = nic.out_bytes_per_second(),
                           .in_bytes_per_second = nic.in_bytes_per_second(),
                           .out_latency_ns = nic.out_latency_ns(),
                           .in_latency_ns = nic.in_latency_ns()});
    }
    for (const v1::HostGpu& gpu : host_proto.gpus()) {
      host.gpus.push_back({.device = gpu.device(),
                           .nic = gpu.nic(),
                           .link_out_bytes_per_second = gpu.link_out_bytes_per_second(),
                           .link_in_bytes_per_second = gpu.link_in_bytes_per_second(),
                           .copy_bytes_per_second = gpu.copy_bytes_per_second(),
                           .link_source = SourceOf(gpu.link_source()),
                           .copy_source = SourceOf(gpu.copy_source())});
    }
    host.local_bytes_per_second = host_proto.local_bytes_per_second();
  }
  std::vector<Rack> racks;
  for (const v1::Rack& rack : proto.racks()) {
    racks.push_back({.name = rack.name(),
                     .hosts = {rack.hosts().begin(), rack.hosts().end()},
                     .up_bytes_per_second = rack.up_bytes_per_second(),
                     .down_bytes_per_second = rack.down_bytes_per_second()});
  }
  const int64_t assumed = proto.assumed_bytes_per_second();
  return Topology::Create(std::move(hosts), std::move(racks),
                          assumed == 0 ? Topology::kAssumedBytesPerSecond : assumed,
                          CostsFromProto(proto.gpu_costs()));
}

absl::StatusOr<LayoutRules> FromProto(
    const google::protobuf::RepeatedPtrField<v1::LayoutRule>& proto) {
  std::string text;
  for (const v1::LayoutRule& rule : proto) {
    ASSIGN_OR_RETURN(const std::string line, RuleLine(rule));
    text += line;
  }
  return LayoutRules::Parse(text);
}

}  // namespace crossmesh
