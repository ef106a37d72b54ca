// planner.h: places buffers with lifetimes in one arena; a proof that a placement has no overlap. No heap.
#pragma once

#include <cstddef>
#include <cstdint>

namespace opforge {

constexpr int64_t kBufferAlignment = 64;

// A buffer lives from the step that writes it first to the step that reads it last, both included.
struct Buffer {
  int64_t bytes;
  int32_t first, last;
  int64_t offset;  // set by place()
};

// Sets the offsets: largest first, each in the gap that fits best among those that live at the same time.
// order: memory for n ids. Returns the bytes of the arena. reuse false = no two buffers share memory (debug).
int64_t place_buffers(Buffer* buffers, int32_t n, int32_t* order, bool reuse);

// True when every pair that lives at one time lies apart and inside the arena. Runs over steps in order.
// order, active: memory for n ids each. Names a pair that overlaps in *a, *b.
bool placement_good(const Buffer* buffers, int32_t n, int64_t arena, int32_t* order, int32_t* active,
                    int32_t* a, int32_t* b);

// Bytes of the largest set that lives at one time: no placement needs less. order: memory for 2 * n ids.
int64_t live_bytes(const Buffer* buffers, int32_t n, int32_t* order);

}  // namespace opforge
