#pragma once

#include <optional>
#include <set>
#include <string>
#include <vector>

namespace crossmesh {

// Workers' words that others are gone or without progress, and which to believe. Both ends of
// a cut link accuse each other, and a worker that is cut off accuses all others, perhaps first. So
// all that may still say something are heard, but for those that are accused: they may be gone.
// Thread-compatible.
class Accusations {
 public:
  // What is known of a worker that takes part.
  struct Witness {
    std::string worker;
    bool ended = false;        // has said its last word, or is lost
    bool lacks_bytes = false;  // that it was to receive
  };

  void Add(const std::string& by, const std::string& of) { accusations_.push_back({by, of}); }
  // The worker is lost, which explains its broken links.
  void Forget(const std::string& worker);
  // Of two that have both said their last word, and have no other broken link, neither is to blame:
  // the link between them has failed.
  void ForgiveEndsOfLinks(const std::vector<Witness>& witnesses);
  // Whether that would be so of more of them if one that is accused spoke as well.
  bool MayForgiveMore(const std::vector<Witness>& witnesses) const;
  void Clear() { accusations_.clear(); }

  struct Verdict {
    std::string guilty;
    std::string accuser;  // at the other end of one of its broken links
  };
  // Whether all that are not accused themselves have said their last word.
  bool AllHeard(const std::vector<Witness>& witnesses) const;
  // The worker to give up next, once all are heard; nothing when no more can be decided.
  std::optional<Verdict> Judge(const std::vector<Witness>& witnesses) const;

 private:
  struct Accusation {
    std::string by;
    std::string of;
  };

  bool IsAccused(const std::string& worker) const;
  bool IsOfLinkAlone(const Accusation& accusation) const;
  // At the other ends of its broken links.
  std::set<std::string> BrokenWith(const std::string& worker) const;
  std::string MostSuspect(const std::vector<Witness>& witnesses) const;
  std::string AccuserOf(const std::string& worker) const;

  std::vector<Accusation> accusations_;  // in order
};

}  // namespace crossmesh
