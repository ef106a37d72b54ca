// planner.cpp: best fit by lifetime. The buffers already placed are kept sorted by offset, so one sweep over
// those that live at the same time finds the smallest gap.
#include "memory/planner.h"

#include <algorithm>

namespace opforge {
namespace {

int64_t rounded(int64_t bytes) {
  return (bytes + kBufferAlignment - 1) / kBufferAlignment * kBufferAlignment;
}

bool together(const Buffer& a, const Buffer& b) { return a.first <= b.last && b.first <= a.last; }

}  // namespace

int64_t place_buffers(Buffer* buffers, int32_t n, int32_t* order, bool reuse) {
  for (int32_t k = 0; k < n; ++k) order[k] = k;
  std::sort(order, order + n, [buffers](int32_t a, int32_t b) {
    const Buffer &x = buffers[a], &y = buffers[b];
    const int64_t long_x = int64_t{x.last} - x.first, long_y = int64_t{y.last} - y.first;
    if (x.bytes != y.bytes) return x.bytes > y.bytes;
    return long_x != long_y ? long_x > long_y : a < b;
  });
  int64_t arena = 0;
  // order[0, k) is, after each step, sorted by offset: the buffers placed so far.
  for (int32_t k = 0; k < n; ++k) {
    const int32_t id = order[k];
    Buffer& buffer = buffers[id];
    const int64_t size = rounded(buffer.bytes);
    int64_t best = -1, best_gap = INT64_MAX, end = 0;
    for (int32_t j = 0; j < k; ++j) {
      const Buffer& other = buffers[order[j]];
      if (other.bytes == 0 || (reuse && !together(buffer, other))) continue;
      const int64_t gap = other.offset - end;
      if (gap >= size && gap < best_gap) {
        best = end;
        best_gap = gap;
      }
      end = std::max(end, other.offset + rounded(other.bytes));
    }
    buffer.offset = best >= 0 ? best : end;
    arena = std::max(arena, buffer.offset + size);
    int32_t j = k;
    for (; j > 0 && buffers[order[j - 1]].offset > buffer.offset; --j) order[j] = order[j - 1];
    order[j] = id;
  }
  return arena;
}

bool placement_good(const Buffer* buffers, int32_t n, int64_t arena, int32_t* order, int32_t* active,
                    int32_t* a, int32_t* b) {
  int32_t count = 0;
  for (int32_t k = 0; k < n; ++k) {
    const Buffer& x = buffers[k];
    *a = *b = k;
    if (x.bytes < 0 || x.offset < 0 || x.bytes > arena || x.offset > arena - x.bytes) return false;
    if (x.bytes > 0) order[count++] = k;
  }
  std::sort(order, order + count,
            [buffers](int32_t p, int32_t q) { return buffers[p].first < buffers[q].first; });
  int32_t living = 0;
  for (int32_t k = 0; k < count; ++k) {
    const Buffer& x = buffers[order[k]];
    int32_t kept = 0;
    for (int32_t j = 0; j < living; ++j) {
      const Buffer& y = buffers[active[j]];
      if (y.last < x.first) continue;
      active[kept++] = active[j];
      if (x.offset < y.offset + y.bytes && y.offset < x.offset + x.bytes) {
        *a = active[j];
        *b = order[k];
        return false;
      }
    }
    living = kept;
    active[living++] = order[k];
  }
  return true;
}

int64_t live_bytes(const Buffer* buffers, int32_t n, int32_t* order) {
  int32_t* starts = order;
  int32_t* ends = order + n;
  for (int32_t k = 0; k < n; ++k) starts[k] = ends[k] = k;
  std::sort(starts, starts + n,
            [buffers](int32_t p, int32_t q) { return buffers[p].first < buffers[q].first; });
  std::sort(ends, ends + n, [buffers](int32_t p, int32_t q) { return buffers[p].last < buffers[q].last; });
  int64_t now = 0, most = 0;
  for (int32_t s = 0, e = 0; s < n; ++s) {
    for (; buffers[ends[e]].last < buffers[starts[s]].first; ++e) now -= rounded(buffers[ends[e]].bytes);
    now += rounded(buffers[starts[s]].bytes);
    most = std::max(most, now);
  }
  return most;
}

}  // namespace opforge
