// blocks_test.cpp: alignment, reuse, and how much a pool keeps.
#include "session/blocks.h"

#include <cstdio>
#include <cstring>
#include <vector>

using opforge::session::BlockPool;
using opforge::session::BlockRef;

namespace {

int failures = 0;

void expect(bool good, const char* what) {
  if (good) return;
  std::printf("%s\n", what);
  ++failures;
}

void every_size() {
  BlockPool pool;
  for (int64_t bytes = 0; bytes < 5000; ++bytes) {
    const BlockRef block = pool.get(bytes);
    expect(reinterpret_cast<uintptr_t>(block.data()) % 64 == 0, "a block is not aligned");
    expect(block.bytes() >= bytes && block.bytes() <= bytes + bytes / 4 + 64, "a block has a wrong size");
    std::memset(block.data(), 1, static_cast<size_t>(block.bytes()));
  }
  expect(pool.live_bytes() == 0, "released blocks are counted");
}

void reuse() {
  BlockPool pool;
  BlockRef first = pool.get(1000);
  const void* place = first.data();
  const BlockRef second = first;
  expect(!first.alone() && !second.alone(), "a shared block says that it is alone");
  first = BlockRef();
  expect(second.alone() && second.data() == place, "a block went although somebody holds it");
  {
    const BlockRef third = second;
  }
  expect(pool.get(1000).data() != place, "a block in use was given away");
  first = second;
  BlockRef last = std::move(first);
  expect(!first && static_cast<bool>(last), "moving a reference does not empty it");
}

void steady() {
  BlockPool pool;
  const void* place = nullptr;
  for (int k = 0; k < 1000; ++k) {
    const BlockRef block = pool.get(100000);
    expect(k == 0 || block.data() == place, "a loop gets new memory in each iteration");
    place = block.data();
  }
}

// Blocks of sizes that nobody wants any more are freed: what is kept follows what was in use.
void changing_sizes() {
  BlockPool pool;
  for (int64_t size = int64_t{1} << 20; size < int64_t{1} << 27; size += size / 3) {
    pool.restart();
    {
      const BlockRef block = pool.get(size);
      expect(static_cast<bool>(block), "no memory");
    }
    expect(pool.idle_bytes() >= size && pool.idle_bytes() <= 3 * size, "a wrong amount is kept");
  }
  pool.restart();
  {
    const BlockRef small = pool.get(100);
  }
  expect(pool.idle_bytes() <= 1 << 20, "large blocks are kept for small ones");
  pool.trim();
  expect(pool.idle_bytes() == 0, "something is kept after all was given back");
}

void foreign() {
  BlockPool pool;
  auto memory = std::make_shared<int>(7);
  {
    const BlockRef block = pool.wrap(memory), other = block;
    expect(block.data() == memory.get() && memory.use_count() == 2, "foreign memory is not held once");
  }
  expect(memory.use_count() == 1, "foreign memory is not released");
}

}  // namespace

int main() {
  every_size();
  reuse();
  steady();
  changing_sizes();
  foreign();
  return failures == 0 ? 0 : 1;
}
