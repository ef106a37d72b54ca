// places.cc: a custom operator for the CPU that calls the functions which the adapter needs on a GPU, so that
// their places in the table are held against the installed ONNX Runtime.
#include <climits>
#include <cstring>

#include "onnxruntime/device.h"

namespace {

using namespace opforge::onnxruntime_host;

struct Kernel {
  DeviceMemory memory;
  int32_t number = -1;
};

Status* create(const CustomOp*, const void* const*, const KernelInfo* info, void** kernel) {
  return guarded([&] {
    auto* made = new Kernel;
    *kernel = made;
    made->number = made->memory.open(info, "places");
  });
}

Status* compute(void* pointer, KernelContext* context) {
  return guarded([&] {
    const Kernel& kernel = *static_cast<Kernel*>(pointer);
    const int64_t size = 4;
    Value* value = nullptr;
    void* data = nullptr;
    check(api().KernelContext_GetOutput(context, 0, &size, 1, &value), "output");
    check(api().GetTensorMutableData(value, &data), "data");
    void* stream = &data;
    check(api().KernelContext_GetGPUComputeStream(context, &stream), "stream");
    void* const memory = kernel.memory.allocate(context, stream, 1 << 20, "places");
    if (memory != nullptr) std::memset(memory, 1, 1 << 20);
    auto* const out = static_cast<float*>(data);
    out[0] = static_cast<float>(kernel.number);
    out[1] = memory != nullptr ? 1 : 0;
    out[2] = memory != nullptr && static_cast<char*>(memory)[(1 << 20) - 1] == 1 ? 1 : 0;
    out[3] = stream == nullptr ? 1 : 0;
    kernel.memory.free(memory);
  });
}

CustomOpHead make() {
  CustomOpHead head{};
  const auto one = [](const CustomOp*) -> size_t { return 1; };
  const auto type = [](const CustomOp*, size_t) -> int32_t { return 1; };
  const auto zero = [](const CustomOp*, size_t) -> int32_t { return 0; };
  const auto number = [](const CustomOp*) -> int32_t { return 1; };
  head.version = kOldest;
  head.GetName = [](const CustomOp*) -> const char* { return "Places"; };
  head.GetExecutionProviderType = [](const CustomOp*) -> const char* { return nullptr; };
  head.GetInputType = head.GetOutputType = type;
  head.GetInputTypeCount = head.GetOutputTypeCount = one;
  head.KernelDestroy = [](void* kernel) { delete static_cast<Kernel*>(kernel); };
  head.GetInputCharacteristic = head.GetOutputCharacteristic = head.GetInputMemoryType = zero;
  head.GetVariadicInputMinArity = head.GetVariadicInputHomogeneity = number;
  head.GetVariadicOutputMinArity = head.GetVariadicOutputHomogeneity = number;
  head.CreateKernelV2 = &create;
  head.KernelComputeV2 = &compute;
  head.GetStartVersion = number;
  head.GetEndVersion = [](const CustomOp*) -> int32_t { return INT_MAX; };
  return head;
}

}  // namespace

extern "C" OPFORGE_EXPORT Status* RegisterCustomOps(SessionOptions* options, const ApiBase* base) {
  static const CustomOpHead head = make();
  const char* const version = base->get_version_string();
  const int32_t minor = std::atoi(std::strchr(version, '.') + 1);
  api().load(base->get_api(static_cast<uint32_t>(minor)), minor);
  CustomOpDomain* domain = nullptr;
  return guarded([&] {
    check(api().CreateCustomOpDomain("test.places", &domain), "domain");
    check(api().CustomOpDomain_Add(domain, reinterpret_cast<const CustomOp*>(&head)), "op");
    check(api().AddCustomOpDomain(options, domain), "options");
  });
}
