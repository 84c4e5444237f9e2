#include "common/base/status_macros.h"
#include "common/plan/course.h"
#include "common/plan/worker_part.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <absl/strings/str_cat.h>

namespace crossmesh {
namespace {

constexpr int32_t kNoWorker = -1;

absl::StatusOr<std::vector<int32_t>> OwnerOfDevices(
    const TensorTable& tensors, const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  std::vector<int32_t> owners(tensors.devices().size(), kNoWorker);
  for (size_t w = 0; w < devices_of_worker.size(); ++w) {
    for (const DeviceId& device : devices_of_worker[w]) {
      const std::optional<DeviceRank> rank = tensors.FindDevice(device);
      if (!rank.has_value()) continue;
      if (owners[*rank] != kNoWorker) {
        return absl::FailedPreconditionError(
            absl::StrCat("device ", ToString(device), ": expected one worker that owns it, found ",
                         owners[*rank], " and ", w));
      }
      owners[*rank] = static_cast<int32_t>(w);
    }
  }
  const auto lost = std::ranges::find(owners, kNoWorker);
  if (lost != owners.end()) {
    return absl::FailedPreconditionError(
        absl::StrCat("device ", ToString(tensors.devices()[lost - owners.begin()]),
                     ": expected a live worker, found none"));
  }
  return owners;
}

// Small numbers for the large ones that a part uses, in order of their first use. Reused from part
// to part: clearing is free.
class Renumbering {
 public:
  explicit Renumbering(size_t count) : entries_(count) {}

  void Clear() {
    ++round_;
    used_ = 0;
  }
  // The small number of `index`, and whether this is its first use.
  std::pair<int32_t, bool> NumberOf(int32_t index) {
    Entry& entry = entries_[index];
    if (entry.round == round_) return {entry.number, false};
    entry = {.round = round_, .number = used_++};
    return {entry.number, true};
  }

 private:
  struct Entry {
    int32_t round = 0;  // for which the number holds
    int32_t number = 0;
  };
  std::vector<Entry> entries_;
  int32_t round_ = 1;
  int32_t used_ = 0;
};

// What classes and sets are, where a part is cut from a plan.
struct PlanClasses {
  const Slicing& slicing;

  WorkerPart::ClassSets SetsOf(ClassIndex c) const {
    const SliceClass& slice_class = slicing.classes()[c];
    return {slice_class.holders, slice_class.receivers, slice_class.conversion};
  }
  std::span<const DeviceRank> DevicesOf(int32_t set) const { return slicing.device_set(set); }
};

// The same where it is cut from a larger part.
struct PartClasses {
  const WorkerPart::Spec& part;

  WorkerPart::ClassSets SetsOf(int32_t class_sets) const { return part.class_sets[class_sets]; }
  std::span<const DeviceRank> DevicesOf(int32_t set) const { return part.device_sets[set]; }
};

// Relays and copies of `spec` name classes of `table`: lists those, and their sets, in `spec`
// itself in order of their first use, and names them there.
template <typename Table>
void NumberClasses(const Table& table, Renumbering& classes, Renumbering& sets,
                   WorkerPart::Spec& spec) {
  classes.Clear();
  sets.Clear();
  const auto number_set = [&](int32_t set) {
    const auto [number, is_new] = sets.NumberOf(set);
    if (is_new) spec.device_sets.Add(table.DevicesOf(set));
    return number;
  };
  const auto number_class = [&](int32_t c) {
    const auto [number, is_new] = classes.NumberOf(c);
    if (is_new) {
      WorkerPart::ClassSets class_sets = table.SetsOf(c);
      class_sets.holders = number_set(class_sets.holders);
      class_sets.receivers = number_set(class_sets.receivers);
      spec.class_sets.push_back(class_sets);
    }
    return number;
  };
  for (WorkerPart::PartRelay& relay : spec.relays) {
    relay.class_sets = number_class(relay.class_sets);
  }
  for (WorkerPart::PartCopy& copy : spec.copies) copy.class_sets = number_class(copy.class_sets);
}

void AddBroadcastGroup(std::span<const DeviceRank> group, WorkerPart::Spec& spec) {
  spec.broadcast_groups.push_back(spec.device_sets.size());
  spec.device_sets.Add(group);
}

// Deals relays, hops and copies out to the parts of all workers at once, so that
// the plan is read once from beginning to end; then numbers each part's classes and sets.
class PartCutter {
 public:
  // `courses`: of each worker.
  PartCutter(const Plan& plan, const std::vector<int32_t>& owners,
             std::vector<std::vector<Course<WorkerPart>>> courses)
      : plan_(plan), owners_(owners), specs_(courses.size()) {
    for (size_t w = 0; w < specs_.size(); ++w) {
      WorkerPart::Spec& spec = specs_[w];
      spec = {.plan = plan.id(),
              .tensors = plan.spec().tensors,
              .over_gpus = plan.spec().over_gpus,
              .courses = courses[w].empty()
                             ? nullptr
                             : std::make_shared<const std::vector<Course<WorkerPart>>>(
                                   std::move(courses[w])),
              .m2n = plan.spec().m2n,
              .chunk_bytes = plan.chunk_bytes(),
              .periods = plan.periods(),
              .least_run_ns = plan.spec().least_run_ns,
              .binding = plan.binding(),
              .shared_storage = plan.shared_storage()};
    }
    for (size_t d = 0; d < owners.size(); ++d) {
      specs_[owners[d]].devices.push_back(static_cast<DeviceRank>(d));
    }
  }

  absl::StatusOr<std::vector<WorkerPart>> Cut() {
    Reserve();
    DealRelays();
    for (const LocalCopy& copy : plan_.copies()) {
      specs_[owners_[copy.device]].copies.push_back({copy.slice_class, copy.device});
    }
    const PlanClasses table{plan_.slicing()};
    Renumbering classes(plan_.slicing().classes().size());
    Renumbering sets(plan_.slicing().device_sets());
    std::vector<WorkerPart> parts;
    parts.reserve(specs_.size());
    for (WorkerPart::Spec& spec : specs_) NumberClasses(table, classes, sets, spec);
    // After the classes: NumberClasses counts the sets that it lists from 0.
    DealBroadcastGroups();
    for (WorkerPart::Spec& spec : specs_) {
      ASSIGN_OR_RETURN(WorkerPart part, WorkerPart::Create(std::move(spec)));
      parts.push_back(std::move(part));
    }
    return parts;
  }

 private:
  // Calls `visit` with each worker that a hop touches, the relay's and the hop's index.
  template <typename Visit>
  void ForEachTouched(Visit visit) const {
    for (size_t r = 0; r < plan_.relays().size(); ++r) {
      const Relay& relay = plan_.relays()[r];
      for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
        const int32_t sender = owners_[plan_.hops()[h].from];
        const int32_t receiver = owners_[plan_.hops()[h].to];
        visit(sender, static_cast<int64_t>(r), h);
        if (receiver != sender) visit(receiver, static_cast<int64_t>(r), h);
      }
    }
  }

  void Reserve() {
    struct Counts {
      int64_t relays = 0;
      int64_t hops = 0;
      int64_t last_relay = -1;
    };
    std::vector<Counts> counts(specs_.size());
    ForEachTouched([&](int32_t worker, int64_t relay, int64_t) {
      Counts& count = counts[worker];
      ++count.hops;
      if (std::exchange(count.last_relay, relay) != relay) ++count.relays;
    });
    for (size_t w = 0; w < specs_.size(); ++w) {
      specs_[w].relays.reserve(counts[w].relays);
      specs_[w].hops.reserve(counts[w].hops);
    }
  }

  // What is dealt out names classes of the plan; NumberClasses replaces that.
  void DealRelays() {
    const Channels channels = ChannelsOf(plan_);
    ForEachTouched([&](int32_t worker, int64_t relay_index, int64_t hop_index) {
      WorkerPart::Spec& spec = specs_[worker];
      if (spec.relays.empty() || spec.relays.back().relay != relay_index) {
        const Relay& relay = plan_.relays()[relay_index];
        spec.relays.push_back({.relay = relay_index,
                               .class_sets = relay.slice_class,
                               .root = relay.root,
                               .begin = relay.begin,
                               .end = relay.end,
                               .first_hop = static_cast<int64_t>(spec.hops.size()),
                               .due = relay.due});
      }
      ++spec.relays.back().hop_count;
      const Hop& hop = plan_.hops()[hop_index];
      spec.hops.push_back({.from = hop.from,
                           .to = hop.to,
                           .channel = channels.of_hop[hop_index],
                           .place = hop.place,
                           .period = hop.period});
    });
  }

  void DealBroadcastGroups() {
    const IdSetList& groups = plan_.spec().broadcast_groups;
    std::vector<int32_t> workers;
    for (int32_t i = 0; i < groups.size(); ++i) {
      workers.clear();
      for (const DeviceRank device : groups[i]) workers.push_back(owners_[device]);
      std::ranges::sort(workers);
      const auto repeated = std::ranges::unique(workers);
      workers.erase(repeated.begin(), repeated.end());
      for (const int32_t worker : workers) AddBroadcastGroup(groups[i], specs_[worker]);
    }
  }

  const Plan& plan_;
  const std::vector<int32_t>& owners_;
  std::vector<WorkerPart::Spec> specs_;
};

// What every part of a part has as the whole has it.
WorkerPart::Spec SettingsOf(const WorkerPart::Spec& whole) {
  return {.plan = whole.plan,
          .tensors = whole.tensors,
          .over_gpus = whole.over_gpus,
          .medium = whole.medium,
          .m2n = whole.m2n,
          .chunk_bytes = whole.chunk_bytes,
          .periods = whole.periods,
          .least_run_ns = whole.least_run_ns,
          .binding = whole.binding,
          .shared_storage = whole.shared_storage};
}

// Of a part of `whole`, whose classes it still names.
void NumberClassesOf(const WorkerPart::Spec& whole, WorkerPart::Spec& spec) {
  Renumbering classes(whole.class_sets.size());
  Renumbering sets(whole.device_sets.size());
  NumberClasses(PartClasses{whole}, classes, sets, spec);
}

// Appends to a part the relay of a larger one, with the hops that touch its devices, if any do.
void AddRelay(const WorkerPart::Spec& from, const WorkerPart::PartRelay& relay,
              WorkerPart::Spec& to) {
  const auto is_there = [&](DeviceRank device) {
    return std::ranges::binary_search(to.devices, device);
  };
  WorkerPart::PartRelay added = relay;
  added.first_hop = std::ssize(to.hops);
  for (int64_t h = relay.first_hop; h < relay.first_hop + relay.hop_count; ++h) {
    const WorkerPart::PartHop& hop = from.hops[h];
    if (is_there(hop.from) || is_there(hop.to)) to.hops.push_back(hop);
  }
  added.hop_count = static_cast<int32_t>(std::ssize(to.hops) - added.first_hop);
  if (added.hop_count > 0) to.relays.push_back(added);
}

// The devices of a part that are in the table of a step, by their ranks there.
std::vector<DeviceRank> RanksIn(const TensorTable& table, const TensorTable& whole,
                                std::span<const DeviceRank> devices) {
  std::vector<DeviceRank> ranks;
  for (const DeviceRank device : devices) {
    const std::optional<DeviceRank> rank = table.FindDevice(whole.devices()[device]);
    if (rank.has_value()) ranks.push_back(*rank);
  }
  std::ranges::sort(ranks);
  return ranks;
}

// The courses of a part as some of its devices have them; null where there are none.
absl::StatusOr<std::shared_ptr<const std::vector<Course<WorkerPart>>>> CutCourses(
    const WorkerPart& part, std::span<const DeviceRank> devices) {
  if (!part.has_courses()) return nullptr;
  std::vector<Course<WorkerPart>> courses = part.courses();
  for (Course<WorkerPart>& course : courses) {
    for (Course<WorkerPart>::Step& step : course.steps) {
      ASSIGN_OR_RETURN(WorkerPart cut,
                       CutPart(*step.move, RanksIn(step.move->tensors(), part.tensors(), devices)));
      step.move = std::make_shared<const WorkerPart>(std::move(cut));
    }
  }
  return std::make_shared<const std::vector<Course<WorkerPart>>>(std::move(courses));
}

// The course as each worker has it.
absl::StatusOr<std::vector<Course<WorkerPart>>> CutCourse(
    const Course<Plan>& course, const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  std::vector<Course<WorkerPart>> cut(devices_of_worker.size(),
                                      {.instances = course.instances,
                                       .buffers = course.buffers,
                                       .tensors = course.tensors,
                                       .releases_source = course.releases_source});
  for (const Course<Plan>::Step& step : course.steps) {
    ASSIGN_OR_RETURN(std::vector<WorkerPart> parts, CutParts(*step.move, devices_of_worker));
    for (size_t w = 0; w < parts.size(); ++w) {
      cut[w].steps.push_back({.move = std::make_shared<const WorkerPart>(std::move(parts[w])),
                              .reduction = step.reduction,
                              .collective = step.collective,
                              .adds_own = step.adds_own});
    }
  }
  return cut;
}

}  // namespace

absl::StatusOr<std::vector<WorkerPart>> CutParts(
    const Plan& plan, const std::vector<std::vector<DeviceId>>& devices_of_worker) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> owners,
                   OwnerOfDevices(plan.tensors(), devices_of_worker));
  std::vector<std::vector<Course<WorkerPart>>> courses(devices_of_worker.size());
  for (const Course<Plan>& course : plan.courses()) {
    ASSIGN_OR_RETURN(std::vector<Course<WorkerPart>> cut, CutCourse(course, devices_of_worker));
    for (size_t w = 0; w < cut.size(); ++w) courses[w].push_back(std::move(cut[w]));
  }
  return PartCutter(plan, owners, std::move(courses)).Cut();
}

absl::StatusOr<WorkerPart> CutPart(const WorkerPart& part, std::vector<DeviceRank> devices) {
  const WorkerPart::Spec& whole = part.spec();
  for (const DeviceRank device : devices) {
    if (std::ranges::binary_search(whole.devices, device)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("a part of a worker's part: expected some of the worker's ",
                     whole.devices.size(), " devices, found rank ", device));
  }
  WorkerPart::Spec spec = SettingsOf(whole);
  spec.devices = std::move(devices);
  ASSIGN_OR_RETURN(spec.courses, CutCourses(part, spec.devices));
  for (const WorkerPart::PartRelay& relay : whole.relays) AddRelay(whole, relay, spec);
  for (const WorkerPart::PartCopy& copy : whole.copies) {
    if (std::ranges::binary_search(spec.devices, copy.device)) spec.copies.push_back(copy);
  }
  NumberClassesOf(whole, spec);
  for (const int32_t set : whole.broadcast_groups) {
    const std::span<const DeviceRank> group = whole.device_sets[set];
    const bool is_touched = std::ranges::any_of(
        spec.devices, [&](DeviceRank d) { return std::ranges::binary_search(group, d); });
    if (is_touched) AddBroadcastGroup(group, spec);
  }
  return WorkerPart::Create(std::move(spec));
}

absl::StatusOr<WorkerPart> CutByMedium(const WorkerPart& part, Medium medium) {
  const WorkerPart::Spec& whole = part.spec();
  WorkerPart::Spec spec = SettingsOf(whole);
  spec.medium = medium;
  const auto is_served = [&](DeviceRank device) {
    return part.IsOverGpus(device) == (medium == Medium::kGpus);
  };
  if (part.has_courses()) {
    std::ranges::copy_if(whole.devices, std::back_inserter(spec.devices), is_served);
    ASSIGN_OR_RETURN(spec.courses, CutCourses(part, spec.devices));
    return WorkerPart::Create(std::move(spec));
  }
  spec.devices = whole.devices;
  for (const WorkerPart::PartRelay& relay : whole.relays) {
    // All of its receivers are served by one medium.
    if (is_served(whole.hops[relay.first_hop].to)) AddRelay(whole, relay, spec);
  }
  std::ranges::copy_if(whole.copies, std::back_inserter(spec.copies),
                       [&](const WorkerPart::PartCopy& copy) { return is_served(copy.device); });
  NumberClassesOf(whole, spec);
  return WorkerPart::Create(std::move(spec));
}

}  // namespace crossmesh
