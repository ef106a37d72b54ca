// fake_driver.cpp: the functions of NVIDIA's driver that opforge.build.cuda_driver and the launcher call, over the host's
// memory, with the signatures of cuda.h. With it the device check runs on a CPU (OPFORGE_CUDA_DRIVER names the library):
// kernels are the emulator's, so a "device address" is one of the host's, and an image names a library of them
// (emulated_images.py). OPFORGE_FAKE_INIT: what cuInit returns; OPFORGE_FAKE_DEVICES: how many devices there are;
// OPFORGE_FAKE_CAPABILITY: theirs; OPFORGE_FAKE_FAIL: "cuLaunchKernel=719", a function that fails and its status.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <map>
#include <mutex>

namespace {

struct Event {
  double at;
};

std::mutex guard;
std::map<uint64_t, size_t> blocks;
bool capturing;

int number_of(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text != nullptr ? atoi(text) : otherwise;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

// Whether [address, address + size) lies in one block; what does not would be an illegal address.
bool inside(uint64_t address, size_t size) {
  const std::lock_guard<std::mutex> lock(guard);
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return false;
  --found;
  return address + size <= found->first + found->second;
}

constexpr int kInvalid = 1, kNoMemory = 2, kNoDevice = 101, kImage = 200, kContext = 201, kHandle = 400, kName = 500,
              kIllegal = 700, kCapturing = 900;
constexpr int kMostDevices = 8, kRelaxed = 2;
int handles[kMostDevices];  // an address per device: its context
int& handle = handles[0];
thread_local void* stack[16];  // of contexts; the last one is current
thread_local int depth, mode;

int device_of(void* context) {
  const auto* at = static_cast<int*>(context);
  return at >= handles && at < handles + kMostDevices ? static_cast<int>(at - handles) : -1;
}
bool is_current(void* context) { return depth > 0 && stack[depth - 1] == context; }

int failing(const char* function) {
  const char* text = getenv("OPFORGE_FAKE_FAIL");
  const size_t size = strlen(function);
  return text != nullptr && strncmp(text, function, size) == 0 && text[size] == '=' ? atoi(text + size + 1) : 0;
}

struct Module {
  void* library;
  void* context;
};
// As the units of emulated_images.py have it.
using Kernel = void (*)(const unsigned* grid, const unsigned* block, void* stream, void** parameters);
struct Function {
  Kernel kernel;
  void* context;
};

}  // namespace

extern "C" {

int cuInit(unsigned) { return number_of("OPFORGE_FAKE_INIT", 0); }
int cuDriverGetVersion(int* version) { return *version = 13000, 0; }
int cuDeviceGetCount(int* count) { return *count = number_of("OPFORGE_FAKE_DEVICES", 1), 0; }
int cuDeviceGet(int* device, int ordinal) {
  const int count = number_of("OPFORGE_FAKE_DEVICES", 1);
  return *device = ordinal, ordinal >= 0 && ordinal < count && ordinal < kMostDevices ? 0 : kNoDevice;
}
int cuDeviceGetName(char* name, int size, int) { return snprintf(name, static_cast<size_t>(size), "Emulated GPU"), 0; }
int cuDeviceGetAttribute(int* value, int attribute, int) {
  switch (attribute) {
    case 16: return *value = 4, 0;
    case 38: return *value = 1 << 16, 0;
    case 75: return *value = number_of("OPFORGE_FAKE_CAPABILITY", 90) / 10, 0;
    case 76: return *value = number_of("OPFORGE_FAKE_CAPABILITY", 90) % 10, 0;
    default: return kInvalid;
  }
}
int cuDeviceTotalMem_v2(size_t* bytes, int) { return *bytes = size_t{1} << 30, 0; }
int cuDevicePrimaryCtxRetain(void** context, int device) { return *context = &handles[device], 0; }
int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
int cuCtxSetCurrent(void* context) {
  if (context != nullptr && device_of(context) < 0) return kHandle;
  if (depth > 0) --depth;
  if (context != nullptr) stack[depth++] = context;
  return 0;
}
int cuCtxGetCurrent(void** context) { return *context = depth > 0 ? stack[depth - 1] : nullptr, 0; }
int cuCtxGetId(void* context, unsigned long long* id) {
  return *id = 1 + static_cast<unsigned long long>(device_of(context)), 0;
}
int cuCtxGetDevice(int* device) {
  if (depth == 0) return kContext;
  return *device = device_of(stack[depth - 1]), 0;
}
int cuCtxPushCurrent_v2(void* context) {
  if (device_of(context) < 0) return kHandle;
  return stack[depth++] = context, 0;
}
int cuCtxPopCurrent_v2(void** context) {
  if (depth == 0) return kContext;
  return *context = stack[--depth], 0;
}
int cuThreadExchangeStreamCaptureMode(int* other) {
  const int before = mode;
  return mode = *other, *other = before, 0;
}
int cuCtxSynchronize(void) { return capturing ? kCapturing : 0; }
int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
  *free_bytes = size_t{1} << 28;
  *total = size_t{1} << 30;
  return 0;
}

int cuMemAlloc_v2(uint64_t* address, size_t size) {
  if (capturing) return kCapturing;
  if (size == 0) return kInvalid;
  void* memory = aligned_alloc(256, (size + 255) / 256 * 256);
  if (memory == nullptr) return kNoMemory;
  memset(memory, 0xA5, size);
  *address = reinterpret_cast<uint64_t>(memory);
  const std::lock_guard<std::mutex> lock(guard);
  blocks[*address] = size;
  return 0;
}
int cuMemFree_v2(uint64_t address) {
  const std::lock_guard<std::mutex> lock(guard);
  if (blocks.erase(address) == 0) return kInvalid;
  free(reinterpret_cast<void*>(address));
  return 0;
}
int cuMemcpyHtoD_v2(uint64_t target, const void* source, size_t size) {
  if (capturing) return kCapturing;
  if (!inside(target, size)) return kIllegal;
  return memcpy(reinterpret_cast<void*>(target), source, size), 0;
}
int cuMemcpyDtoH_v2(void* target, uint64_t source, size_t size) {
  if (capturing) return kCapturing;
  if (!inside(source, size)) return kIllegal;
  return memcpy(target, reinterpret_cast<const void*>(source), size), 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t target, uint64_t source, size_t size, void*) {
  if (!inside(target, size) || !inside(source, size)) return kIllegal;
  return memmove(reinterpret_cast<void*>(target), reinterpret_cast<const void*>(source), size), 0;
}
int cuMemsetD8Async(uint64_t target, unsigned char byte, size_t size, void*) {
  if (!inside(target, size)) return kIllegal;
  return memset(reinterpret_cast<void*>(target), byte, size), 0;
}

int cuStreamCreate(void** stream, unsigned) { return *stream = new int(0), 0; }
int cuStreamSynchronize(void*) { return capturing ? kCapturing : 0; }
int cuStreamDestroy_v2(void* stream) { return delete static_cast<int*>(stream), 0; }

int cuEventCreate(void** event, unsigned) { return *event = new Event{0}, 0; }
int cuEventRecord(void* event, void*) { return static_cast<Event*>(event)->at = now(), 0; }
int cuEventSynchronize(void* event) { return event != nullptr ? 0 : kHandle; }
int cuEventElapsedTime(float* milliseconds, void* start, void* end) {
  const double between = static_cast<Event*>(end)->at - static_cast<Event*>(start)->at;
  return *milliseconds = static_cast<float>(1e3 * between), 0;
}
int cuEventDestroy_v2(void* event) { return delete static_cast<Event*>(event), 0; }

// What is recorded has run at once: launching the graph again changes nothing more.
int cuStreamBeginCapture_v2(void* stream, int) {
  if (stream == nullptr || capturing) return kCapturing;
  return capturing = true, 0;
}
int cuStreamEndCapture(void*, void** graph) {
  if (!capturing) return kInvalid;
  capturing = false;
  return *graph = &handle, 0;
}
int cuGraphInstantiateWithFlags(void** executable, void* graph, unsigned long long) { return *executable = graph, 0; }
int cuGraphLaunch(void* executable, void*) { return executable == &handle ? 0 : kHandle; }
int cuGraphExecDestroy(void*) { return 0; }
int cuGraphDestroy(void*) { return 0; }

// ---- modules

// What happened so far (modules that are loaded), how the last launch was, and for which architecture the image that was loaded last.
struct {
  int64_t loads, launches;
  int device;
  unsigned grid[3], block[3];
  void* stream;
  char architecture[16];
} opforge_fake_seen;

int cuModuleLoadDataEx(void** module, const void* image, unsigned options, int* kinds, void** values) {
  static const char kHead[] = "opforge emulated image ";
  if (depth == 0) return kContext;
  if (capturing && mode != kRelaxed) return kCapturing;
  if (const int status = failing("cuModuleLoadDataEx")) return status;
  const char* text = static_cast<const char*>(image);
  void* library = nullptr;
  if (memcmp(text, kHead, sizeof kHead - 1) == 0) library = dlopen(text + sizeof kHead - 1, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const bool logs = options == 2 && kinds[0] == 5 && kinds[1] == 6;
    if (logs) snprintf(static_cast<char*>(values[0]), reinterpret_cast<size_t>(values[1]), "the fake driver's log");
    return kImage;
  }
  ++opforge_fake_seen.loads;
  snprintf(opforge_fake_seen.architecture, sizeof opforge_fake_seen.architecture, "%s", text + strlen(text) + 1);
  return *module = new Module{library, stack[depth - 1]}, 0;
}
int cuModuleUnload(void* module) {
  --opforge_fake_seen.loads;
  return dlclose(static_cast<Module*>(module)->library), delete static_cast<Module*>(module), 0;
}
int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int status = failing("cuModuleGetFunction")) return status;
  const Module* of = static_cast<Module*>(module);
  const auto kernel = reinterpret_cast<Kernel>(dlsym(of->library, name));
  if (kernel == nullptr) return kName;
  return *function = new Function{kernel, of->context}, 0;
}
int cuFuncLoad(void* function) {
  if (const int status = failing("cuFuncLoad")) return status;
  return function != nullptr ? 0 : kHandle;
}
int cuFuncGetAttribute(int* value, int attribute, void*) {
  return *value = number_of("OPFORGE_FAKE_THREADS", 1024), attribute == 0 ? 0 : kInvalid;
}
int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned, void* stream, void** parameters, void** extra) {
  const Function* of = static_cast<Function*>(function);
  if (!is_current(of->context)) return kHandle;  // of another device's module
  if (const int status = failing("cuLaunchKernel")) return status;
  const unsigned grid[] = {grid_x, grid_y, grid_z}, block[] = {block_x, block_y, block_z};
  if (grid_x == 0 || block_x == 0 || block_x > 1024 || extra != nullptr) return kInvalid;
  ++opforge_fake_seen.launches;
  opforge_fake_seen.device = device_of(of->context);
  opforge_fake_seen.stream = stream;
  memcpy(opforge_fake_seen.grid, grid, sizeof grid);
  memcpy(opforge_fake_seen.block, block, sizeof block);
  of->kernel(grid, block, stream, parameters);
  return 0;
}

int cuGetErrorName(int status, const char** text) {
  switch (status) {
    case 35: return *text = "CUDA_ERROR_INSUFFICIENT_DRIVER", 0;
    case 100: return *text = "CUDA_ERROR_NO_DEVICE", 0;
    case 101: return *text = "CUDA_ERROR_INVALID_DEVICE", 0;
    case 209: return *text = "CUDA_ERROR_NO_BINARY_FOR_GPU", 0;
    case 719: return *text = "CUDA_ERROR_LAUNCH_FAILED", 0;
    default: return *text = "CUDA_ERROR", 0;
  }
}
int cuGetErrorString(int status, const char** text) {
  *text = status == 100 ? "no CUDA-capable device is detected" : "the fake driver refuses";
  return 0;
}

}  // extern "C"
