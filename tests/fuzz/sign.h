// sign.h: makes all checksums of a changed bin right again, so that the change reaches the checks behind
// them.
#pragma once

#include <cstdint>
#include <cstring>

#include "format/crc32c.h"
#include "format/format.h"

namespace opforge::test {

// The entry of a kind of section when it lies inside the file, else null.
inline format::SectionEntry* section(uint8_t* bytes, size_t size, uint32_t kind) {
  if (size < sizeof(format::Header)) return nullptr;
  const auto* header = reinterpret_cast<const format::Header*>(bytes);
  const uint64_t table = uint64_t{header->sections} * sizeof(format::SectionEntry);
  if (header->sections > format::kMaxSections || table > size - sizeof(format::Header)) return nullptr;
  auto* entries = reinterpret_cast<format::SectionEntry*>(bytes + sizeof(format::Header));
  for (uint32_t k = 0; k < header->sections; ++k) {
    const format::SectionEntry& entry = entries[k];
    if (entry.kind == kind && entry.offset <= size && entry.size <= size - entry.offset) return &entries[k];
  }
  return nullptr;
}

inline void sign_weights(uint8_t* bytes, size_t size) {
  const format::SectionEntry* sums = section(bytes, size, format::kChecksums);
  const format::SectionEntry* weights = section(bytes, size, format::kWeights);
  if (sums == nullptr || weights == nullptr) return;
  for (uint64_t block = 0; block * format::kBlock < weights->size; ++block) {
    const uint64_t begin = block * format::kBlock, rest = weights->size - begin, at = 8 + 4 * block;
    if (at + 4 > sums->size) return;
    const auto length = static_cast<size_t>(rest < format::kBlock ? rest : format::kBlock);
    const uint32_t crc = crc32c(0, bytes + weights->offset + begin, length);
    std::memcpy(bytes + sums->offset + at, &crc, 4);
  }
}

inline void sign(uint8_t* bytes, size_t size) {
  if (size < sizeof(format::Header)) return;
  auto* header = reinterpret_cast<format::Header*>(bytes);
  std::memcpy(header->magic, format::kMagic, sizeof header->magic);
  header->file_size = size;
  const uint64_t table = uint64_t{header->sections} * sizeof(format::SectionEntry);
  if (header->sections <= format::kMaxSections && table <= size - sizeof(format::Header)) {
    auto* entries = reinterpret_cast<format::SectionEntry*>(bytes + sizeof(format::Header));
    sign_weights(bytes, size);
    for (uint32_t k = 0; k < header->sections; ++k) {
      format::SectionEntry& entry = entries[k];
      if (entry.size > size || entry.offset > size - entry.size) continue;
      if (entry.kind != format::kWeights)
        entry.crc = crc32c(0, bytes + entry.offset, static_cast<size_t>(entry.size));
    }
    header->table_crc = crc32c(0, entries, static_cast<size_t>(table));
  }
  header->header_crc = crc32c(0, header, 60);
}

}  // namespace opforge::test
