// dtypes.h: PyTorch's dtype numbers (asked from the process, they are PyTorch's own) and the ABI's dtype
// triples.
#pragma once

#include <string>

#include "common/failure.h"
#include "opforge/detail/signature.h"
#include "stable/shims.h"

namespace opforge::torch_host {

class Dtypes {
 public:
  // Call after Shims::load.
  void load() {
    const Shims& torch = shims();
    add(torch.aoti_torch_dtype_float16(), {OPFORGE_CODE_FLOAT, 16, 1});
    add(torch.aoti_torch_dtype_bfloat16(), {OPFORGE_CODE_BFLOAT, 16, 1});
    add(torch.aoti_torch_dtype_float32(), {OPFORGE_CODE_FLOAT, 32, 1});
    add(torch.aoti_torch_dtype_float64(), {OPFORGE_CODE_FLOAT, 64, 1});
    add(torch.aoti_torch_dtype_int8(), {OPFORGE_CODE_INT, 8, 1});
    add(torch.aoti_torch_dtype_int16(), {OPFORGE_CODE_INT, 16, 1});
    add(torch.aoti_torch_dtype_int32(), {OPFORGE_CODE_INT, 32, 1});
    add(torch.aoti_torch_dtype_int64(), {OPFORGE_CODE_INT, 64, 1});
    add(torch.aoti_torch_dtype_uint8(), {OPFORGE_CODE_UINT, 8, 1});
    add(torch.aoti_torch_dtype_uint16(), {OPFORGE_CODE_UINT, 16, 1});
    add(torch.aoti_torch_dtype_uint32(), {OPFORGE_CODE_UINT, 32, 1});
    add(torch.aoti_torch_dtype_uint64(), {OPFORGE_CODE_UINT, 64, 1});
    add(torch.aoti_torch_dtype_bool(), {OPFORGE_CODE_BOOL, 8, 1});
  }

  // bits = 0 where the ABI has no such dtype.
  opforge_dtype from_torch(int32_t number) const {
    return number >= 0 && number < kNumbers ? table_[number] : opforge_dtype{OPFORGE_CODE_OPAQUE, 0, 0};
  }
  int32_t to_torch(opforge_dtype dtype, const std::string& where) const {
    for (int32_t number = 0; number < kNumbers; ++number) {
      if (table_[number].bits != 0 && detail::same(table_[number], dtype)) return number;
    }
    throw failure(OPFORGE_STATUS_UNSUPPORTED, where, "PyTorch has no such dtype", "",
                  detail::dtype_name(dtype));
  }

 private:
  static constexpr int32_t kNumbers = 64;
  void add(int32_t number, opforge_dtype dtype) {
    if (number >= 0 && number < kNumbers) table_[number] = dtype;
  }
  opforge_dtype table_[kNumbers] = {};
};

inline Dtypes& dtypes() {
  static Dtypes table;
  return table;
}

}  // namespace opforge::torch_host
