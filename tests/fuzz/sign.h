// sign.h: makes all checksums of a changed bin right again, so that the change reaches the checks behind
// them.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>

#include "format/crc32c.h"
#include "format/format.h"

namespace opforge::test {

// Bytes of the header and of the table of sections; 0 when they do not lie inside the file.
inline uint64_t head(const uint8_t* bytes, size_t size) {
  if (size < sizeof(format::Header)) return 0;
  const uint32_t sections = reinterpret_cast<const format::Header*>(bytes)->sections;
  const uint64_t end = sizeof(format::Header) + uint64_t{sections} * sizeof(format::SectionEntry);
  return sections <= format::kMaxSections && end <= size ? end : 0;
}

// The entry of a kind of section that lies inside the file, by value: what is written afterwards may change
// the table itself, since a mutated section may lie over it.
inline std::optional<format::SectionEntry> section(const uint8_t* bytes, size_t size, uint32_t kind) {
  const uint64_t end = head(bytes, size);
  for (uint64_t at = sizeof(format::Header); at < end; at += sizeof(format::SectionEntry)) {
    format::SectionEntry entry;
    std::memcpy(&entry, bytes + at, sizeof entry);
    if (entry.kind == kind && entry.offset <= size && entry.size <= size - entry.offset) return entry;
  }
  return std::nullopt;
}

inline void sign_weights(uint8_t* bytes, size_t size) {
  const auto sums = section(bytes, size, format::kChecksums),
             weights = section(bytes, size, format::kWeights);
  if (!sums || !weights) return;
  if (sums->offset < head(bytes, size)) return;  // the loader refuses it; the table stays what it is
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
  if (const uint64_t end = head(bytes, size)) {
    auto* entries = reinterpret_cast<format::SectionEntry*>(bytes + sizeof(format::Header));
    sign_weights(bytes, size);
    for (uint32_t k = 0; k < header->sections; ++k) {
      format::SectionEntry& entry = entries[k];
      if (entry.size > size || entry.offset > size - entry.size) continue;
      if (entry.kind != format::kWeights)
        entry.crc = crc32c(0, bytes + entry.offset, static_cast<size_t>(entry.size));
    }
    header->table_crc = crc32c(0, entries, static_cast<size_t>(end - sizeof(format::Header)));
  }
  header->header_crc = crc32c(0, header, 60);
}

}  // namespace opforge::test
