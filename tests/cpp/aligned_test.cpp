// aligned_test.cpp: a kernel that asks for pages runs on hosts whose memory lies anywhere, also where it
// allocates its outputs itself.
#include <stdint.h>

#include <memory>
#include <string>
#include <vector>

#include "checked.h"
#include "common/context.h"

namespace {

using namespace opforge;
using namespace opforge::adapter;

constexpr size_t kPage = 4096;
constexpr int64_t kSize = 5;

void serial(int64_t chunks, void (*body)(int64_t, int64_t, void*), void* user) { body(0, chunks, user); }

// Memory that never lies at a multiple of 8.
struct Odd {
  std::vector<std::unique_ptr<char[]>> blocks;
  void* take(size_t bytes) {
    blocks.push_back(std::make_unique<char[]>(bytes + 8));
    char* const start = blocks.back().get();
    return start + (reinterpret_cast<uintptr_t>(start) % 8 == 4 ? 0 : 4);
  }
};

struct Host {
  Odd memory;
  opforge_tensor* tensors;
  int64_t shape[1];

  int32_t outputs() const { return 2; }
  void allocate(int32_t index, const int64_t* sizes, int32_t rank) {
    tensors[index].data = memory.take(static_cast<size_t>(sizes[0]) * sizeof(float));
    tensors[index].ndim = rank;
    tensors[index].shape = const_cast<int64_t*>(sizes);
    tensors[index].dtype = {OPFORGE_CODE_FLOAT, 32, 1};
    tensors[index].device = {OPFORGE_DEVICE_CPU, 0};
  }
};

bool on_page(const opforge_tensor& tensor) { return reinterpret_cast<uintptr_t>(tensor.data) % kPage == 0; }

// Doubles its input into both outputs; the second it allocates, twice, as one that has guessed wrong would.
opforge_status doubles(opforge_context* context, const opforge_arguments* inputs,
                       const opforge_arguments* outputs, const opforge_attribute*) {
  const opforge_tensor &x = inputs->tensors[0], &y = outputs->tensors[0], &late = outputs->tensors[1];
  for (const int64_t size : {int64_t{0}, int64_t{2}, kSize}) {
    const opforge_status status = context->allocate_output(context, 1, &size, 1);
    if (status != OPFORGE_STATUS_OK) return status;
    if (!on_page(late)) return context->error(context, OPFORGE_STATUS_INTERNAL, "late output");
    for (int64_t i = 0; i < size; ++i) static_cast<float*>(late.data)[i] = -1;
  }
  if (!on_page(x) || !on_page(y)) return context->error(context, OPFORGE_STATUS_INTERNAL, "early tensor");
  for (int64_t i = 0; i < kSize; ++i) {
    const float value = 2 * static_cast<const float*>(x.data)[i];
    static_cast<float*>(y.data)[i] = static_cast<float*>(late.data)[i] = value;
  }
  return OPFORGE_STATUS_OK;
}

void test_outputs(uint32_t alignment) {
  opforge_tensor x{}, y[2] = {};
  Host host{{}, y, {kSize}};
  for (opforge_tensor* one : {&x, &y[0]}) {
    one->data = host.memory.take(kSize * sizeof(float));
    one->ndim = 1;
    one->shape = host.shape;
    one->dtype = {OPFORGE_CODE_FLOAT, 32, 1};
    one->device = {OPFORGE_DEVICE_CPU, 0};
  }
  for (int64_t i = 0; i < kSize; ++i) static_cast<float*>(x.data)[i] = static_cast<float>(i);
  const void* const places[] = {x.data, y[0].data};
  opforge_kernel kernel{};
  kernel.alignment = alignment;
  kernel.run = &doubles;
  const int32_t counts[] = {1, 1};
  CallContext context(&serial, nullptr);
  context.call = &host;
  context.allocate = &allocate_late<Host>;
  const opforge_status status = run_in(context, kernel, {&x, counts, 1, 1}, {y, counts, 2, 2}, nullptr);
  if (alignment == 0) {
    CHECK(status == OPFORGE_STATUS_INTERNAL && context.text == "late output");
    return;
  }
  CHECK(status == OPFORGE_STATUS_OK);
  CHECK(x.data == places[0] && y[0].data == places[1] && !on_page(y[1]));  // as the host has them
  for (int64_t i = 0; i < kSize; ++i) {
    CHECK(static_cast<float*>(y[0].data)[i] == static_cast<float>(2 * i));
    CHECK(static_cast<float*>(y[1].data)[i] == static_cast<float>(2 * i));
  }
}

}  // namespace

int main() {
  test_outputs(kPage);
  test_outputs(0);
  return failures == 0 ? 0 : 1;
}
