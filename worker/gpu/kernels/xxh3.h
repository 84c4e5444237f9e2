// XXH3 with 64 bits, seed 0 and the default secret, taken apart so that many threads can hash one
// input. By Y. Collet; equal to XXH3_64bits of the library xxhash for every input.
//
// Inputs of over 240 bytes are hashed in stripes of 64 bytes, which are eight lanes of 8 bytes, and
// blocks of 16 stripes. A stripe adds to each lane's accumulator something that depends on nothing
// but the stripe and its index in the block, so sums may be taken in any order. Only between blocks
// there is a step that needs what came before: Xxh3Scramble, lane by lane.

#pragma once

#include "worker/gpu/kernels/device_code.h"

#include <cstdint>

namespace crossmesh {

inline constexpr int kXxh3Lanes = 8;
inline constexpr int kXxh3LaneBytes = 8;
inline constexpr int kXxh3StripeBytes = 64;
inline constexpr int kXxh3BlockBytes = 1024;
inline constexpr int kXxh3SecretWords = 24;
// The longest input that is not hashed in stripes.
inline constexpr int kXxh3ShortMax = 240;

// The secret in words of 8 bytes, little endian. The functions below take a copy of all words,
// which is best kept where threads of a block share it.
CROSSMESH_DEVICE inline uint64_t Xxh3SecretWord(int index) {
  static constexpr uint64_t kWords[kXxh3SecretWords] = {
      0xbe4ba423396cfeb8, 0x1cad21f72c81017c, 0xdb979083e96dd4de, 0x1f67b3b7a4a44072,
      0x78e5c0cc4ee679cb, 0x2172ffcc7dd05a82, 0x8e2443f7744608b8, 0x4c263a81e69035e0,
      0xcb00c391bb52283c, 0xa32e531b8b65d088, 0x4ef90da297486471, 0xd8acdea946ef1938,
      0x3f349ce33f76faa8, 0x1d4f0bc7c7bbdcf9, 0x3159b4cd4be0518a, 0x647378d9c97e9fc8,
      0xc3ebd33483acc5ea, 0xeb6313faffa081c5, 0x49daf0b751dd0d17, 0x9e68d429265516d3,
      0xfca1477d58be162b, 0xce31d07ad1b8f88f, 0x280416958f3acb45, 0x7e404bbbcafbd7af};
  return kWords[index];
}

// The word at any byte of an input.
CROSSMESH_DEVICE inline uint64_t Xxh3Word(const std::byte* input, int at) {
  uint64_t word;
  std::memcpy(&word, input + at, sizeof(word));
  return word;
}

namespace internal {

inline constexpr uint32_t kPrime32First = 0x9E3779B1;
inline constexpr uint32_t kPrime32Second = 0x85EBCA77;
inline constexpr uint32_t kPrime32Third = 0xC2B2AE3D;
inline constexpr uint64_t kPrime64First = 0x9E3779B185EBCA87;
inline constexpr uint64_t kPrime64Second = 0xC2B2AE3D27D4EB4F;
inline constexpr uint64_t kPrime64Third = 0x165667B19E3779F9;
inline constexpr uint64_t kPrime64Fourth = 0x85EBCA77C2B2AE63;
inline constexpr uint64_t kPrime64Fifth = 0x27D4EB2F165667C5;

// 8 bytes of the secret from any byte on.
CROSSMESH_DEVICE inline uint64_t SecretAt(const uint64_t* secret, int byte) {
  const int word = byte / 8;
  const int shift = byte % 8 * 8;
  if (shift == 0) return secret[word];
  return secret[word] >> shift | secret[word + 1] << (64 - shift);
}

CROSSMESH_DEVICE inline uint32_t ReadHalfWord(const std::byte* input, int at) {
  uint32_t word;
  std::memcpy(&word, input + at, sizeof(word));
  return word;
}

CROSSMESH_DEVICE inline uint64_t SwapBytes(uint64_t word) {
  uint64_t swapped = 0;
  for (int i = 0; i < 8; ++i) swapped = swapped << 8 | (word >> (8 * i) & 0xFF);
  return swapped;
}

CROSSMESH_DEVICE inline uint64_t RotateLeft(uint64_t word, int bits) {
  return word << bits | word >> (64 - bits);
}

CROSSMESH_DEVICE inline uint64_t FoldProduct(uint64_t a, uint64_t b) {
  const Uint128 product = static_cast<Uint128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

CROSSMESH_DEVICE inline uint64_t Avalanche(uint64_t hash) {
  hash ^= hash >> 37;
  hash *= 0x165667919E3779F9;
  return hash ^ hash >> 32;
}

CROSSMESH_DEVICE inline uint64_t AvalancheOfXxh64(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= kPrime64Second;
  hash ^= hash >> 29;
  hash *= kPrime64Third;
  return hash ^ hash >> 32;
}

// 16 bytes of an input with 16 bytes of the secret.
class PairMixer {
 public:
  CROSSMESH_DEVICE PairMixer(const std::byte* input, const uint64_t* secret)
      : input_(input), secret_(secret) {}
  CROSSMESH_DEVICE uint64_t operator()(int input_byte, int secret_byte) const {
    return FoldProduct(Xxh3Word(input_, input_byte) ^ SecretAt(secret_, secret_byte),
                       Xxh3Word(input_, input_byte + 8) ^ SecretAt(secret_, secret_byte + 8));
  }

 private:
  const std::byte* input_;
  const uint64_t* secret_;
};

// 0 to 16 bytes.
CROSSMESH_DEVICE inline uint64_t HashTiny(const std::byte* input, int bytes,
                                          const uint64_t* secret) {
  if (bytes > 8) {
    const uint64_t low = Xxh3Word(input, 0) ^ secret[3] ^ secret[4];
    const uint64_t high = Xxh3Word(input, bytes - 8) ^ secret[5] ^ secret[6];
    return Avalanche(bytes + SwapBytes(low) + high + FoldProduct(low, high));
  }
  if (bytes >= 4) {
    const uint64_t first = ReadHalfWord(input, 0);
    const uint64_t last = ReadHalfWord(input, bytes - 4);
    uint64_t hash = (last + (first << 32)) ^ secret[1] ^ secret[2];
    hash ^= RotateLeft(hash, 49) ^ RotateLeft(hash, 24);
    hash *= 0x9FB21C651E98DF25;
    hash ^= (hash >> 35) + bytes;
    hash *= 0x9FB21C651E98DF25;
    return hash ^ hash >> 28;
  }
  if (bytes > 0) {
    const auto first = static_cast<uint32_t>(input[0]);
    const auto middle = static_cast<uint32_t>(input[bytes / 2]);
    const auto last = static_cast<uint32_t>(input[bytes - 1]);
    const uint32_t all = first << 16 | middle << 24 | last | static_cast<uint32_t>(bytes) << 8;
    const auto key = static_cast<uint32_t>(secret[0] ^ secret[0] >> 32);
    return AvalancheOfXxh64(all ^ key);
  }
  return AvalancheOfXxh64(secret[7] ^ secret[8]);
}

}  // namespace internal

// The hash of 0 to 240 bytes.
CROSSMESH_DEVICE inline uint64_t Xxh3Short(const std::byte* input, int bytes,
                                           const uint64_t* secret) {
  if (bytes <= 16) return internal::HashTiny(input, bytes, secret);
  const internal::PairMixer mix(input, secret);
  uint64_t hash = bytes * internal::kPrime64First;
  if (bytes <= 128) {
    // Pairs from both ends inwards.
    for (int i = (bytes - 1) / 32; i >= 0; --i) {
      hash += mix(16 * i, 32 * i);
      hash += mix(bytes - 16 * (i + 1), 32 * i + 16);
    }
    return internal::Avalanche(hash);
  }
  for (int i = 0; i < 8; ++i) hash += mix(16 * i, 16 * i);
  hash = internal::Avalanche(hash);
  for (int i = 8; i < bytes / 16; ++i) {
    hash += mix(16 * i, 16 * (i - 8) + 3);
  }
  hash += mix(bytes - 16, 119);
  return internal::Avalanche(hash);
}

// What one lane's accumulator starts with.
CROSSMESH_DEVICE inline uint64_t Xxh3LaneStart(int lane) {
  static constexpr uint64_t kStarts[kXxh3Lanes] = {
      internal::kPrime32Third, internal::kPrime64First,  internal::kPrime64Second,
      internal::kPrime64Third, internal::kPrime64Fourth, internal::kPrime32Second,
      internal::kPrime64Fifth, internal::kPrime32First};
  return kStarts[lane];
}

// What a stripe adds to one lane: `own` is the lane's word, `other` that of the lane beside it,
// lane ^ 1; `key` is word `lane + stripe` of the secret, where `stripe` is the index in the block.
CROSSMESH_DEVICE inline uint64_t Xxh3Contribution(uint64_t own, uint64_t other, uint64_t key) {
  const uint64_t keyed = own ^ key;
  return other + (keyed & 0xFFFFFFFF) * (keyed >> 32);
}

// The key of a lane for the last 64 bytes of an input, which are one more stripe wherever they lie.
CROSSMESH_DEVICE inline uint64_t Xxh3LastKey(const uint64_t* secret, int lane) {
  return internal::SecretAt(secret, 121 + kXxh3LaneBytes * lane);
}

// What ends a block, if another one follows.
CROSSMESH_DEVICE inline uint64_t Xxh3Scramble(uint64_t accumulator, const uint64_t* secret,
                                              int lane) {
  return (accumulator ^ accumulator >> 47 ^ secret[16 + lane]) * internal::kPrime32First;
}

// The hash, from the accumulators of the eight lanes at the end.
CROSSMESH_DEVICE inline uint64_t Xxh3Merge(const uint64_t* lanes, int64_t bytes,
                                           const uint64_t* secret) {
  uint64_t hash = static_cast<uint64_t>(bytes) * internal::kPrime64First;
  for (int i = 0; i < kXxh3Lanes; i += 2) {
    hash += internal::FoldProduct(
        lanes[i] ^ internal::SecretAt(secret, 11 + kXxh3LaneBytes * i),
        lanes[i + 1] ^ internal::SecretAt(secret, 11 + kXxh3LaneBytes * (i + 1)));
  }
  return internal::Avalanche(hash);
}

}  // namespace crossmesh
