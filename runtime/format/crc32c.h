// crc32c.h: CRC-32C (Castagnoli), with the CPU's instruction where it has one.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge {

// Pass 0, or the result so far to continue.
uint32_t crc32c(uint32_t crc, const void* data, size_t size);
// The table version, for tests and for CPUs without the instruction.
uint32_t crc32c_portable(uint32_t crc, const void* data, size_t size);

}  // namespace opforge
