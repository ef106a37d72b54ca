// dispatch.h: the boundary between the C ABI and an author's kernel; used by generated units only.
#pragma once

#include "opforge/kernel.h"

namespace opforge::detail {

// Finds the tensors of each parameter in the flat list of the ABI.
class Parameters {
 public:
  explicit Parameters(const opforge_arguments* arguments) : arguments_(arguments) {}

  template <class T, int N>
  View<T, N> view(int parameter) const {
    return arguments_->counts[parameter] ? View<T, N>(arguments_->tensors[first(parameter)]) : View<T, N>();
  }
  template <class T, int N>
  Views<T, N> views(int parameter) const {
    return Views<T, N>(arguments_->tensors + first(parameter), arguments_->counts[parameter]);
  }

 private:
  int first(int parameter) const {
    int index = 0;
    for (int p = 0; p < parameter; ++p) index += arguments_->counts[p];
    return index;
  }
  const opforge_arguments* arguments_;
};

inline std::string_view text(const opforge_attribute& a) {
  return {a.value.s.data, static_cast<size_t>(a.value.s.size)};
}
inline List<int64_t> ints(const opforge_attribute& a) { return {a.value.ints, a.count}; }
inline List<double> floats(const opforge_attribute& a) { return {a.value.floats, a.count}; }
inline List<opforge_string> strings(const opforge_attribute& a) { return {a.value.strings, a.count}; }

// Runs `call`, which may throw, and turns whatever leaves it into a status with text.
template <class Here = Context, class Call>
Status guarded(opforge_context* raw, const opforge_arguments*, const opforge_arguments* outputs,
               Call call) noexcept {
  Here context(raw, outputs);
  try {
    if constexpr (std::is_void_v<decltype(call(context))>) {
      call(context);
      return kOk;
    } else {
      return call(context);
    }
  } catch (const Context::HostFailure& failure) {
    return context.fail(failure.status, "%s", failure.text);
  } catch (const std::exception& error) {
    return context.fail(OPFORGE_STATUS_INTERNAL, "the kernel threw: %s", error.what());
  } catch (...) {
    return context.fail(OPFORGE_STATUS_INTERNAL, "the kernel threw an unknown exception");
  }
}

}  // namespace opforge::detail
