// shims.h: the functions of PyTorch's stable C ABI that the adapter calls, declared here and looked up at run
// time in the libtorch_cpu.so of this process (PyTorch >= 2.10), so that no PyTorch header or library is
// needed to build.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace opforge::torch_host {

using Handle = void*;          // AtenTensorHandle, TorchLibraryHandle, StringHandle, StableListHandle
using StableValue = uint64_t;  // StableIValue: a number, a handle, or a pointer to an optional's value
using StableKernel = void (*)(StableValue* stack, uint64_t inputs, uint64_t outputs);

// X(result, name, parameters)
#define OPFORGE_TORCH_SHIMS(X)                                                                          \
  X(int32_t, aoti_torch_library_init_fragment, (const char*, const char*, uint32_t, Handle*))           \
  X(int32_t, aoti_torch_library_init_impl, (const char*, const char*, const char*, uint32_t, Handle*))  \
  X(int32_t, aoti_torch_library_def, (Handle, const char*))                                             \
  X(int32_t, aoti_torch_delete_library_object, (Handle))                                                \
  X(int32_t, torch_library_impl, (Handle, const char*, StableKernel, uint64_t))                         \
  X(int32_t, torch_call_dispatcher, (const char*, const char*, StableValue*, uint64_t))                 \
  X(int32_t, torch_parallel_for, (int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*)) \
  X(int32_t, aoti_torch_get_data_ptr, (Handle, void**))                                                 \
  X(int32_t, aoti_torch_get_dim, (Handle, int64_t*))                                                    \
  X(int32_t, aoti_torch_get_sizes, (Handle, int64_t**))                                                 \
  X(int32_t, aoti_torch_get_strides, (Handle, int64_t**))                                               \
  X(int32_t, aoti_torch_get_dtype, (Handle, int32_t*))                                                  \
  X(int32_t, aoti_torch_get_device_type, (Handle, int32_t*))                                            \
  X(int32_t, aoti_torch_get_device_index, (Handle, int32_t*))                                           \
  X(int32_t, aoti_torch_get_layout, (Handle, int32_t*))                                                 \
  X(int32_t, aoti_torch_is_contiguous, (Handle, bool*))                                                 \
  X(int32_t, aoti_torch_empty_strided,                                                                  \
    (int64_t, const int64_t*, const int64_t*, int32_t, int32_t, int32_t, Handle*))                      \
  X(int32_t, aoti_torch_new_tensor_handle, (Handle, Handle*))                                           \
  X(int32_t, aoti_torch_delete_tensor_object, (Handle))                                                 \
  X(int32_t, torch_string_length, (Handle, size_t*))                                                    \
  X(int32_t, torch_string_c_str, (Handle, const char**))                                                \
  X(int32_t, torch_delete_string, (Handle))                                                             \
  X(int32_t, torch_list_size, (Handle, size_t*))                                                        \
  X(int32_t, torch_list_get_item, (Handle, size_t, StableValue*))                                       \
  X(int32_t, torch_new_list_reserve_size, (size_t, Handle*))                                            \
  X(int32_t, torch_list_push_back, (Handle, StableValue))                                               \
  X(int32_t, torch_delete_list, (Handle))                                                               \
  X(uint64_t, aoti_torch_abi_version, ())                                                               \
  X(int32_t, aoti_torch_device_type_cpu, ())                                                            \
  X(int32_t, aoti_torch_device_type_cuda, ())                                                           \
  X(int32_t, aoti_torch_layout_strided, ())                                                             \
  X(int32_t, aoti_torch_memory_format_contiguous_format, ())                                            \
  X(int32_t, aoti_torch_dtype_float16, ())                                                              \
  X(int32_t, aoti_torch_dtype_bfloat16, ())                                                             \
  X(int32_t, aoti_torch_dtype_float32, ())                                                              \
  X(int32_t, aoti_torch_dtype_float64, ())                                                              \
  X(int32_t, aoti_torch_dtype_int8, ())                                                                 \
  X(int32_t, aoti_torch_dtype_int16, ())                                                                \
  X(int32_t, aoti_torch_dtype_int32, ())                                                                \
  X(int32_t, aoti_torch_dtype_int64, ())                                                                \
  X(int32_t, aoti_torch_dtype_uint8, ())                                                                \
  X(int32_t, aoti_torch_dtype_uint16, ())                                                               \
  X(int32_t, aoti_torch_dtype_uint32, ())                                                               \
  X(int32_t, aoti_torch_dtype_uint64, ())                                                               \
  X(int32_t, aoti_torch_dtype_bool, ())

struct Shims {
#define OPFORGE_DECLARE(result, name, parameters) result(*name) parameters = nullptr;
  OPFORGE_TORCH_SHIMS(OPFORGE_DECLARE)
#undef OPFORGE_DECLARE
  // PyTorch >= 2.12: with tags inductor knows that any strides will do, and copies nothing to keep them.
  int32_t (*torch_library_def_with_tags)(Handle, const char*, const int32_t*, int32_t) = nullptr;
  int32_t (*torch_tag_flexible_layout)() = nullptr;
  int32_t (*torch_tag_pt2_compliant_tag)() = nullptr;
  // PyTorch >= 2.13 gives memory of optionals through these; before, both sides share operator new and
  // delete.
  int32_t (*torch_new_stable_ivalue)(StableValue**) = nullptr;
  int32_t (*torch_delete_stable_ivalue)(StableValue*) = nullptr;
  const char* (*torch_exception_get_what_without_backtrace)() = nullptr;

  // Fixed for the process: the version that the stable values are laid out for, and the dtype numbers.
  uint64_t version = 0;
  int32_t cpu = 0, cuda = 0, strided = 0, contiguous_format = 0;

  void load(const char* libtorch_cpu) {
    void* library = dlopen(libtorch_cpu, RTLD_NOW | RTLD_NOLOAD);
    if (library == nullptr) {
      throw std::runtime_error(std::string(libtorch_cpu) +
                               " is not loaded in this process: import torch first");
    }
#define OPFORGE_LOOK_UP(result, name, parameters)                                                      \
  name = reinterpret_cast<decltype(name)>(dlsym(library, #name));                                      \
  if (name == nullptr) {                                                                               \
    throw std::runtime_error("this PyTorch has no " #name                                              \
                             "\n  expected: PyTorch 2.10 or newer\n  to do: "                          \
                             "upgrade PyTorch, or build the accelerator: opforge build --host torch"); \
  }
    OPFORGE_TORCH_SHIMS(OPFORGE_LOOK_UP)
#undef OPFORGE_LOOK_UP
    const auto optional = [library](auto& function, const char* name) {
      function = reinterpret_cast<std::decay_t<decltype(function)>>(dlsym(library, name));
    };
    optional(torch_library_def_with_tags, "torch_library_def_with_tags");
    optional(torch_tag_flexible_layout, "torch_tag_flexible_layout");
    optional(torch_tag_pt2_compliant_tag, "torch_tag_pt2_compliant_tag");
    optional(torch_new_stable_ivalue, "torch_new_stable_ivalue");
    optional(torch_delete_stable_ivalue, "torch_delete_stable_ivalue");
    optional(torch_exception_get_what_without_backtrace, "torch_exception_get_what_without_backtrace");
    version = aoti_torch_abi_version();
    cpu = aoti_torch_device_type_cpu();
    cuda = aoti_torch_device_type_cuda();
    strided = aoti_torch_layout_strided();
    contiguous_format = aoti_torch_memory_format_contiguous_format();
  }

  void check(int32_t status, const char* what) const {
    if (status == 0) return;
    std::string text = std::string("PyTorch failed in ") + what;
    if (torch_exception_get_what_without_backtrace != nullptr) {
      const char* more = torch_exception_get_what_without_backtrace();
      if (more != nullptr && *more != '\0') text += std::string(": ") + more;
    }
    throw std::runtime_error(text);
  }
};

inline Shims& shims() {
  static Shims table;
  return table;
}

}  // namespace opforge::torch_host
