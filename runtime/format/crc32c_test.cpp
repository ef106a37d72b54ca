// crc32c_test.cpp: the instruction and the tables agree at every length and alignment; published vectors.
#include "format/crc32c.h"

#include <cstdio>
#include <vector>

int main() {
  std::vector<uint8_t> data(50000);
  uint32_t state = 1;
  for (uint8_t& byte : data) byte = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  int bad = opforge::crc32c(0, "123456789", 9) != 0xE3069283u;
  for (size_t begin = 0; begin < 9; ++begin) {
    for (size_t size : {size_t{0}, size_t{1}, size_t{8}, size_t{31}, size_t{4096}, size_t{12288},
                        size_t{12289}, size_t{40000}}) {
      const uint32_t a = opforge::crc32c(7, data.data() + begin, size);
      bad += a != opforge::crc32c_portable(7, data.data() + begin, size);
      const uint32_t half = opforge::crc32c(7, data.data() + begin, size / 2);
      bad += a != opforge::crc32c(half, data.data() + begin + size / 2, size - size / 2);
    }
  }
  std::printf("crc32c_test: %d differences\n", bad);
  return bad != 0;
}
