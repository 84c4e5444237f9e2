#pragma once

namespace crossmesh {

// Which sanitizers this is built with: they take time, and allocators of their own.
#if defined(__has_feature)
inline constexpr bool kHasAddressSanitizer = __has_feature(address_sanitizer);
inline constexpr bool kHasThreadSanitizer = __has_feature(thread_sanitizer);
#else
inline constexpr bool kHasAddressSanitizer = false;
inline constexpr bool kHasThreadSanitizer = false;
#endif

}  // namespace crossmesh
