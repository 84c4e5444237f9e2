#include "controller/operation/accusations.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <tuple>
#include <utility>

namespace crossmesh {
namespace {

const Accusations::Witness* Find(const std::vector<Accusations::Witness>& witnesses,
                                 const std::string& worker) {
  const auto found = std::ranges::find(witnesses, worker, &Accusations::Witness::worker);
  return found == witnesses.end() ? nullptr : &*found;
}

bool HasEnded(const std::vector<Accusations::Witness>& witnesses, const std::string& worker) {
  const Accusations::Witness* witness = Find(witnesses, worker);
  return witness != nullptr && witness->ended;
}

}  // namespace

void Accusations::Forget(const std::string& worker) {
  std::erase_if(accusations_,
                [&](const Accusation& a) { return a.of == worker || a.by == worker; });
}

void Accusations::ForgiveEndsOfLinks(const std::vector<Witness>& witnesses) {
  const auto is_forgiven = [&](const Accusation& a) {
    return IsOfLinkAlone(a) && HasEnded(witnesses, a.by) && HasEnded(witnesses, a.of);
  };
  std::vector<Accusation> others;
  std::ranges::copy_if(accusations_, std::back_inserter(others), std::not_fn(is_forgiven));
  accusations_ = std::move(others);
}

bool Accusations::MayForgiveMore(const std::vector<Witness>& witnesses) const {
  return std::ranges::any_of(accusations_, [&](const Accusation& a) {
    return IsOfLinkAlone(a) && !HasEnded(witnesses, a.of);
  });
}

bool Accusations::IsOfLinkAlone(const Accusation& accusation) const {
  return BrokenWith(accusation.by).size() == 1 && BrokenWith(accusation.of).size() == 1;
}

bool Accusations::IsAccused(const std::string& worker) const {
  return std::ranges::find(accusations_, worker, &Accusation::of) != accusations_.end();
}

bool Accusations::AllHeard(const std::vector<Witness>& witnesses) const {
  return std::ranges::all_of(witnesses, [this](const Witness& witness) {
    return witness.ended || IsAccused(witness.worker);
  });
}

std::optional<Accusations::Verdict> Accusations::Judge(
    const std::vector<Witness>& witnesses) const {
  if (accusations_.empty()) return std::nullopt;
  const std::string guilty = MostSuspect(witnesses);
  // One that accuses others and is accused by none may be right, as long as one of those is silent.
  if (HasEnded(witnesses, guilty) && !IsAccused(guilty)) {
    const auto silent = [&](const Accusation& a) {
      return a.by == guilty && !HasEnded(witnesses, a.of);
    };
    if (std::ranges::any_of(accusations_, silent)) return std::nullopt;
  }
  return Verdict{.guilty = guilty, .accuser = AccuserOf(guilty)};
}

// The one with most broken links; of several, one that has said nothing, then one that lacks bytes,
// then the one that was accused first.
std::string Accusations::MostSuspect(const std::vector<Witness>& witnesses) const {
  std::vector<std::string> suspects;
  for (const Accusation& a : accusations_) suspects.insert(suspects.end(), {a.of, a.by});
  const auto suspicion = [&](const std::string& worker) {
    const Witness* witness = Find(witnesses, worker);
    const bool silent = witness == nullptr || !witness->ended;
    const bool lacks_bytes = witness != nullptr && witness->lacks_bytes;
    return std::tuple(BrokenWith(worker).size(), silent, lacks_bytes);
  };
  return *std::ranges::max_element(suspects, {}, suspicion);
}

std::set<std::string> Accusations::BrokenWith(const std::string& worker) const {
  std::set<std::string> ends;
  for (const Accusation& a : accusations_) {
    if (a.of == worker) ends.insert(a.by);
    if (a.by == worker) ends.insert(a.of);
  }
  return ends;
}

std::string Accusations::AccuserOf(const std::string& worker) const {
  const auto found = std::ranges::find(accusations_, worker, &Accusation::of);
  if (found != accusations_.end()) return found->by;
  return std::ranges::find(accusations_, worker, &Accusation::by)->of;
}

}  // namespace crossmesh
