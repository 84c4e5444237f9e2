// Pieces of up to 16 packed bytes and the elements in memory that they are made of. A piece is a
// number of 128 bits, its first byte the lowest.

#pragma once

#include "common/numbers/number_formats.h"
#include "worker/gpu/kernels/device_code.h"
#include "worker/gpu/kernels/element_scaling.h"

#include <cstdint>
#include <type_traits>

namespace crossmesh {

inline constexpr int kPieceBytes = 16;

namespace internal {

// Loads `count` words from any address by aligned accesses. They may touch bytes before and after
// those asked for, but no word that has none of them, so no memory that might not be there. Without
// branches, so that loads of several calls can be under way together.
template <typename Word, int count>
CROSSMESH_DEVICE inline void LoadWords(uint64_t address, Word (&words)[count]) {
  constexpr uint64_t kWordBytes = sizeof(Word);
  const uint64_t skipped = address % kWordBytes;
  const uint64_t from = address - skipped;
  CROSSMESH_UNROLL
  for (int i = 0; i < count; ++i) words[i] = LoadAligned<Word>(from + i * kWordBytes);
  const auto behind = LoadAligned<Word>(from + (skipped == 0 ? 0 : count * kWordBytes));
  const auto shift = static_cast<int>(8 * skipped);
  CROSSMESH_UNROLL
  for (int i = 0; i < count; ++i) {
    const Word next = i + 1 < count ? words[i + 1] : behind;
    // By one bit and the rest, because a shift by all bits is none of C++'s.
    words[i] = words[i] >> shift | next << 1 << (8 * static_cast<int>(kWordBytes) - 1 - shift);
  }
}

// As above, from a multiple of the word's size.
template <typename Word, int count>
CROSSMESH_DEVICE inline void LoadAlignedWords(uint64_t address, Word (&words)[count]) {
  CROSSMESH_UNROLL
  for (int i = 0; i < count; ++i) words[i] = LoadAligned<Word>(address + i * sizeof(Word));
}

}  // namespace internal

// Bytes as they are.
struct CopiedBytes {
  using Scaling = Unscaled;
  static constexpr int kMemoryBytes = 1;  // of an element
  static constexpr int kPackedBytes = 1;

  // 16 packed bytes of elements that follow each other in memory.
  CROSSMESH_DEVICE static Uint128 LoadPiece(uint64_t address, Scaling /*scaling*/ = {}) {
    Uint128 piece[1];
    internal::LoadWords(address, piece);
    return piece[0];
  }
  // As above, from a multiple of kAlignment.
  static constexpr int kAlignment = kPieceBytes;
  CROSSMESH_DEVICE static Uint128 LoadAlignedPiece(uint64_t address, Scaling /*scaling*/ = {}) {
    return LoadAligned<Uint128>(address);
  }
  // 1 to 16 bytes.
  CROSSMESH_DEVICE static Uint128 LoadPart(uint64_t address, int bytes, Scaling /*scaling*/ = {}) {
    const auto skipped = static_cast<int>(address % kPieceBytes);
    const uint64_t from = address - skipped;
    Uint128 piece = LoadAligned<Uint128>(from) >> (8 * skipped);
    if (skipped + bytes > kPieceBytes) {
      piece |= LoadAligned<Uint128>(from + kPieceBytes) << (8 * (kPieceBytes - skipped));
    }
    return bytes < kPieceBytes ? piece & ((Uint128{1} << (8 * bytes)) - 1) : piece;
  }
};

// Elements of format From in memory that are packed as To. All of a piece are scaled alike.
template <class From, class To, class ElementScaling = Unscaled>
struct ConvertedElements {
  using Scaling = ElementScaling;
  static constexpr int kMemoryBytes = sizeof(typename From::Word);
  static constexpr int kPackedBytes = sizeof(typename To::Word);

 private:
  static constexpr int kPieceMemoryBytes = kPieceBytes / kPackedBytes * kMemoryBytes;
  using Word = std::conditional_t < kPieceMemoryBytes<kPieceBytes, uint64_t, Uint128>;
  static constexpr int kWords = kPieceMemoryBytes / sizeof(Word);

 public:
  CROSSMESH_DEVICE static Uint128 LoadPiece(uint64_t address, Scaling scaling) {
    Word words[kWords];
    internal::LoadWords(address, words);
    return Convert(words, scaling);
  }
  static constexpr int kAlignment = sizeof(Word);
  CROSSMESH_DEVICE static Uint128 LoadAlignedPiece(uint64_t address, Scaling scaling) {
    Word words[kWords];
    internal::LoadAlignedWords(address, words);
    return Convert(words, scaling);
  }
  CROSSMESH_DEVICE static Uint128 LoadPart(uint64_t address, int bytes, Scaling scaling) {
    Uint128 piece = 0;
    for (int done = 0; done < bytes; done += kPackedBytes) {
      const auto word = LoadAligned<typename From::Word>(address);
      piece |= Uint128{ConvertOne(word, scaling)} << (8 * done);
      address += kMemoryBytes;
    }
    return piece;
  }

 private:
  CROSSMESH_DEVICE static typename To::Word ConvertOne(typename From::Word word, Scaling scaling) {
    return To::Narrow(scaling.Scale(From::Widen(word)));
  }

  CROSSMESH_DEVICE static Uint128 Convert(const Word (&words)[kWords], Scaling scaling) {
    constexpr int kPerWord = sizeof(Word) / kMemoryBytes;
    Uint128 piece = 0;
    CROSSMESH_UNROLL
    for (int i = 0; i < kWords * kPerWord; ++i) {
      const Word word = words[i / kPerWord] >> (8 * kMemoryBytes * (i % kPerWord));
      const auto element = static_cast<typename From::Word>(word);
      piece |= Uint128{ConvertOne(element, scaling)} << (8 * kPackedBytes * i);
    }
    return piece;
  }
};

using QuantizedElements = ConvertedElements<Bf16, Fp8, BlockFactor>;

// Stores the first 1 to 16 bytes of a piece, by the widest accesses that the address allows.
CROSSMESH_DEVICE inline void StorePart(uint64_t address, Uint128 piece, int bytes) {
  if (bytes == kPieceBytes && address % kPieceBytes == 0) {
    StoreAligned(address, piece);
    return;
  }
  const uint64_t common = address | static_cast<uint64_t>(bytes);
  const int unit = common % 8 == 0 ? 8 : common % 4 == 0 ? 4 : common % 2 == 0 ? 2 : 1;
  for (int done = 0; done < bytes; done += unit) {
    const auto word = static_cast<uint64_t>(piece >> (8 * done));
    if (unit == 8) StoreAligned(address + done, word);
    if (unit == 4) StoreAligned(address + done, static_cast<uint32_t>(word));
    if (unit == 2) StoreAligned(address + done, static_cast<uint16_t>(word));
    if (unit == 1) StoreAligned(address + done, static_cast<uint8_t>(word));
  }
}

}  // namespace crossmesh
