// window.cpp: reads the attributes of sliding windows.
#include "kernels/window.h"

namespace opforge::kernels {
namespace {

// Fills the last `rank` of three values; false when the attribute has another length.
bool read3(const Attributes& attributes, const char* name, int rank, int64_t* values) {
  const int64_t* given = nullptr;
  int64_t count = 0;
  if (!attributes.get_ints(name, &given, &count)) return true;
  if (count != rank) return false;
  for (int i = 0; i < rank; ++i) values[3 - rank + i] = given[i];
  return true;
}

}  // namespace

bool read_window(const Attributes& attributes, const Shape& x, const int64_t* kernel, Window* w) {
  w->rank = x.rank - 2;
  if (w->rank < 1 || w->rank > 3) return false;
  const int first = 3 - w->rank;
  for (int i = first; i < 3; ++i) {
    w->in[i] = x[2 + i - first];
    if (kernel != nullptr) w->kernel[i] = kernel[i - first];
  }
  if (!read3(attributes, "kernel_shape", w->rank, w->kernel) ||
      !read3(attributes, "strides", w->rank, w->stride) ||
      !read3(attributes, "dilations", w->rank, w->dilation))
    return false;
  const int64_t* pads = nullptr;
  int64_t count = 0;
  if (attributes.get_ints("pads", &pads, &count)) {
    if (count != 2 * w->rank) return false;
    for (int i = 0; i < w->rank; ++i) {
      w->before[first + i] = pads[i];
      w->after[first + i] = pads[w->rank + i];
    }
  }
  const StringView automatic = attributes.get_string("auto_pad", "NOTSET");
  const bool upper = equals(automatic, "SAME_UPPER"), lower = equals(automatic, "SAME_LOWER");
  const bool ceil = attributes.get_int("ceil_mode", 0) != 0;
  constexpr int64_t kLimit = int64_t{1} << 31;
  for (int i = first; i < 3; ++i) {
    const auto in_range = [](int64_t v, int64_t lo) { return v >= lo && v < kLimit; };
    if (!in_range(w->kernel[i], 1) || !in_range(w->stride[i], 1) || !in_range(w->dilation[i], 1))
      return false;
    if (!in_range(w->before[i], 0) || !in_range(w->after[i], 0)) return false;
    const int64_t span = (w->kernel[i] - 1) * w->dilation[i] + 1;
    if (equals(automatic, "VALID")) w->before[i] = w->after[i] = 0;
    if (upper || lower) {
      const int64_t n = ceil_div(w->in[i], w->stride[i]);
      const int64_t total = greater<int64_t>(0, (n - 1) * w->stride[i] + span - w->in[i]);
      w->before[i] = upper ? total / 2 : total - total / 2;
      w->after[i] = total - w->before[i];
    }
    const int64_t room = w->in[i] + w->before[i] + w->after[i] - span;
    w->out[i] = room < 0 ? 0 : (ceil ? ceil_div(room, w->stride[i]) : room / w->stride[i]) + 1;
    // A window that would begin in the padding behind the image does not exist.
    if (ceil && w->out[i] > 0 && (w->out[i] - 1) * w->stride[i] >= w->in[i] + w->before[i]) --w->out[i];
  }
  return true;
}

}  // namespace opforge::kernels
