// planner_test.cpp: placements of random buffers are proven, compact, and a planted overlap is found.
#include "memory/planner.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

using opforge::Buffer;

namespace {

void expect(bool good, const char* what) {
  if (good) return;
  std::fprintf(stderr, "planner_test: %s\n", what);
  std::exit(1);
}

std::vector<Buffer> random_buffers(unsigned seed, int n) {
  std::srand(seed);
  std::vector<Buffer> buffers;
  for (int k = 0; k < n; ++k) {
    const int first = std::rand() % 50;
    buffers.push_back({std::rand() % 5000, first, first + std::rand() % 6, 0});
  }
  return buffers;
}

bool overlap(const Buffer& a, const Buffer& b) {
  return a.bytes > 0 && b.bytes > 0 && a.first <= b.last && b.first <= a.last &&
         a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

int main() {
  double worst = 1;
  for (unsigned seed = 0; seed < 300; ++seed) {
    const int n = 1 + static_cast<int>(seed) % 120;
    std::vector<Buffer> buffers = random_buffers(seed, n);
    std::vector<int32_t> order(2 * buffers.size()), active(buffers.size());
    const int64_t arena = opforge::place_buffers(buffers.data(), n, order.data(), true);
    for (int a = 0; a < n; ++a) {
      expect(buffers[a].offset % opforge::kBufferAlignment == 0, "an offset is not aligned");
      expect(buffers[a].offset + buffers[a].bytes <= arena, "a buffer leaves the arena");
      for (int b = a + 1; b < n; ++b) expect(!overlap(buffers[a], buffers[b]), "two live buffers overlap");
    }
    int32_t x = 0, y = 0;
    expect(opforge::placement_good(buffers.data(), n, arena, order.data(), active.data(), &x, &y),
           "a good placement is refused");
    const int64_t least = opforge::live_bytes(buffers.data(), n, order.data());
    expect(least <= arena, "the lower bound is above the arena");
    if (least > 0)
      worst = arena > worst * static_cast<double>(least)
                  ? static_cast<double>(arena) / static_cast<double>(least)
                  : worst;
    // Plant an overlap between two that live together.
    for (int a = 0; a < n; ++a) {
      for (int b = a + 1; b < n; ++b) {
        if (buffers[a].bytes == 0 || buffers[b].bytes == 0 || buffers[a].first > buffers[b].last ||
            buffers[b].first > buffers[a].last)
          continue;
        std::vector<Buffer> broken = buffers;
        broken[b].offset = broken[a].offset;
        expect(!opforge::placement_good(broken.data(), n, arena + 10000, order.data(), active.data(), &x, &y),
               "an overlap is not found");
        a = b = n;
      }
    }
    const int64_t apart = opforge::place_buffers(buffers.data(), n, order.data(), false);
    expect(apart >= arena, "no reuse takes less than reuse");
  }
  expect(worst < 1.5, "placements waste more than half of the lower bound");
  std::printf("planner_test: worst arena / lower bound %.3f\n", worst);
  return 0;
}
