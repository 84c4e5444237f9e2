#include "common/host_devices/host_devices.h"

#include "common/base/status_macros.h"
#include "common/mesh/gpu_model.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <tuple>
#include <utility>

#include <absl/status/status.h>
#include <absl/strings/ascii.h>
#include <absl/strings/numbers.h>
#include <absl/strings/str_cat.h>
#include <absl/strings/str_split.h>

namespace crossmesh {
namespace {

namespace fs = std::filesystem;

constexpr absl::string_view kNvidia = "0x10de";
// Of what a slot signals PCIe 4.0 x16 carries 26 of 32 GB/s as payload.
constexpr double kPayloadShare = 26.0 / 32;

class SystemReader {
 public:
  explicit SystemReader(const std::string& root) : root_(root) {}

  SystemDevices Read() && {
    for (const std::string& address : EntriesOf("sys/bus/pci/devices")) AddGpu(address);
    for (const std::string& name : EntriesOf("sys/class/infiniband")) AddRdmaDevice(name);
    for (const std::string& name : EntriesOf("sys/class/net")) AddInterface(name);
    std::ranges::sort(devices_.nics, {}, &SystemNic::name);
    return std::move(devices_);
  }

 private:
  std::string Text(const std::string& path) const {
    std::ifstream file(root_ + path);
    std::ostringstream text;
    text << file.rdbuf();
    return std::string(absl::StripAsciiWhitespace(text.str()));
  }

  // The number that a file begins with, e.g. "16.0 GT/s PCIe"; 0: none.
  double Number(const std::string& path) const {
    const std::string text = Text(path);
    double number = 0;
    return absl::SimpleAtod(text.substr(0, text.find(' ')), &number) ? number : 0;
  }

  std::vector<std::string> EntriesOf(const std::string& path) const {
    std::vector<std::string> names;
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(root_ + path, error)) {
      names.push_back(entry.path().filename());
    }
    std::ranges::sort(names);
    return names;
  }

  PciPlace PlaceOf(const std::string& path) const {
    std::error_code error;
    PciPlace place{.path = fs::canonical(root_ + path, error)};
    if (!absl::SimpleAtoi(Text(path + "/numa_node"), &place.numa_node)) place.numa_node = -1;
    return place;
  }

  void AddGpu(const std::string& address) {
    const std::string path = "sys/bus/pci/devices/" + address;
    const std::string device_class = Text(path + "/class");
    // Display controllers: VGA, and 3D.
    if (Text(path + "/vendor") != kNvidia || !device_class.starts_with("0x03")) return;
    // The current speed is lower while a GPU is idle.
    const double gigabits = Number(path + "/max_link_speed") * Number(path + "/max_link_width");
    SystemGpu gpu{.address = address,
                  .place = PlaceOf(path),
                  .slot_bytes_per_second = static_cast<int64_t>(gigabits * 1e9 / 8 * kPayloadShare),
                  .model = "",
                  .uuid = ""};
    const std::string information = Text("proc/driver/nvidia/gpus/" + address + "/information");
    for (const absl::string_view line : absl::StrSplit(information, '\n')) {
      const std::pair<absl::string_view, absl::string_view> field =
          absl::StrSplit(line, absl::MaxSplits(':', 1));
      const std::string value(absl::StripAsciiWhitespace(field.second));
      if (field.first == "Model") gpu.model = value;
      if (absl::StripAsciiWhitespace(field.first) == "GPU UUID") gpu.uuid = value;
    }
    devices_.gpus.push_back(std::move(gpu));
  }

  // Of InfiniBand the interface does not say the speed.
  void AddRdmaDevice(const std::string& name) {
    const std::string path = "sys/class/infiniband/" + name;
    if (!Text(path + "/ports/1/state").starts_with("4:")) return;  // ACTIVE
    const std::vector<std::string> interfaces = EntriesOf(path + "/device/net");
    AddNic(interfaces.empty() ? name : interfaces[0], path, Number(path + "/ports/1/rate") * 1e9);
  }

  void AddInterface(const std::string& name) {
    const std::string path = "sys/class/net/" + name;
    if (Text(path + "/operstate") != "up") return;
    AddNic(name, path, Number(path + "/speed") * 1e6);
  }

  // Not of bridges, loopback and the like, which have no device.
  void AddNic(const std::string& name, const std::string& path, double bits_per_second) {
    SystemNic nic{.name = name,
                  .place = PlaceOf(path + "/device"),
                  .bytes_per_second = static_cast<int64_t>(bits_per_second / 8)};
    const bool is_known =
        std::ranges::find(devices_.nics, name, &SystemNic::name) != devices_.nics.end();
    if (nic.place.path.empty() || nic.bytes_per_second <= 0 || is_known) return;
    devices_.nics.push_back(std::move(nic));
  }

  const std::string& root_;
  SystemDevices devices_;
};

// How near they are: by bridges in common, then by node.
std::pair<int64_t, bool> Nearness(const PciPlace& a, const PciPlace& b) {
  const fs::path one(a.path), other(b.path);
  int64_t common = 0;
  for (auto i = one.begin(), j = other.begin(); i != one.end() && j != other.end() && *i == *j;) {
    ++common, ++i, ++j;
  }
  return {common, a.numa_node >= 0 && a.numa_node == b.numa_node};
}

// By NVLink as far as it is up, or else by its slot.
int64_t LinkRateOf(const SystemGpu& gpu, const GpuModel& model) {
  const int links = gpu.managed.has_value() ? gpu.managed->nvlinks : model.nvlinks;
  const int64_t nvlink = model.LinkBytesPerSecond(std::min(links, model.nvlinks));
  return nvlink > 0 ? nvlink : gpu.slot_bytes_per_second;
}

}  // namespace

SystemDevices ReadSystemDevices(const std::string& root) { return SystemReader(root).Read(); }

SystemDevices ReadSystemDevices(const std::string& root, const std::string& nvml_library) {
  SystemDevices devices = ReadSystemDevices(root);
  std::vector<std::string> uuids;
  for (const SystemGpu& gpu : devices.gpus) uuids.push_back(gpu.uuid);
  if (uuids.empty()) return devices;
  const absl::StatusOr<std::vector<std::optional<NvmlGpu>>> managed = ReadNvml(nvml_library, uuids);
  if (!managed.ok()) return devices;
  for (size_t i = 0; i < devices.gpus.size(); ++i) devices.gpus[i].managed = (*managed)[i];
  return devices;
}

absl::StatusOr<Host> DescribeHost(const SystemDevices& devices, std::string name) {
  if (devices.gpus.empty()) return absl::NotFoundError("no GPU in /sys/bus/pci/devices");
  if (devices.nics.empty()) return absl::NotFoundError("no NIC whose link is up and has a speed");
  Host host{.name = std::move(name), .nics = {}};
  for (const SystemNic& nic : devices.nics) {
    host.nics.push_back({.name = nic.name,
                         .out_bytes_per_second = nic.bytes_per_second,
                         .in_bytes_per_second = nic.bytes_per_second});
  }
  std::map<std::string, int64_t> gpus_of_nic;
  for (const SystemGpu& gpu : devices.gpus) {
    const GpuModel* const model = FindGpuModel(gpu.model);
    if (model == nullptr) {
      return absl::NotFoundError(absl::StrCat(
          "GPU ", gpu.address, ": its rates are not known; model \"", gpu.model, "\""));
    }
    const auto nic = std::ranges::max_element(devices.nics, {}, [&](const SystemNic& candidate) {
      return std::tuple(Nearness(gpu.place, candidate.place), -gpus_of_nic[candidate.name]);
    });
    ++gpus_of_nic[nic->name];
    const int64_t link = LinkRateOf(gpu, *model);
    if (link <= 0) {
      return absl::NotFoundError(absl::StrCat("GPU ", gpu.address, ": its slot says no speed"));
    }
    host.gpus.push_back({.device = static_cast<int32_t>(host.gpus.size()),
                         .nic = nic->name,
                         .link_out_bytes_per_second = link,
                         .link_in_bytes_per_second = link,
                         .copy_bytes_per_second = model->copy_bytes_per_second()});
  }
  return host;
}

}  // namespace crossmesh
