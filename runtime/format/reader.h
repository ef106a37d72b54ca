// reader.h: header and section table of a .bin in memory, verified; no heap.
#pragma once

#include "format/error.h"
#include "format/format.h"

namespace opforge::format {

struct Section {
  const uint8_t* data = nullptr;  // null = the file has no such section
  uint64_t size = 0;
  uint32_t count = 0;
};

struct File {
  const uint8_t* bytes = nullptr;
  uint64_t size = 0;
  Section sections[kKinds];
};

// The name that messages use for a kind.
const char* kind_name(uint32_t kind);

// bytes must be aligned to 8 and stay. Checks bounds, then checksums: the header, the table, and every known
// section but the weights.
Status open(const void* bytes, uint64_t size, File* file, Error* error);

// The checksum of block k of the weights.
bool weights_block_good(const File& file, uint32_t block);

}  // namespace opforge::format
