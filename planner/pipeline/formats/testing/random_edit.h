#pragma once

#include "common/plan/testing/random_source.h"

#include <string>

#include <absl/strings/string_view.h>

namespace crossmesh {

// The text with one to three characters taken out, doubled, exchanged with another one of the text,
// or replaced by one of `characters`.
inline std::string RandomEdit(RandomSource& random, absl::string_view original,
                              absl::string_view characters) {
  std::string text(original);
  for (int64_t edits = random.Between(1, 3); edits > 0 && !text.empty(); --edits) {
    const auto at = static_cast<size_t>(random.Below(std::ssize(text)));
    switch (random.Below(4)) {
      case 0:
        text.erase(at, 1);
        break;
      case 1:
        text.insert(at, 1, text[at]);
        break;
      case 2:
        std::swap(text[at], text[random.Below(std::ssize(text))]);
        break;
      default:
        text[at] = characters[random.Below(std::ssize(characters))];
    }
  }
  return text;
}

}  // namespace crossmesh
