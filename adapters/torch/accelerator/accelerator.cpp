// accelerator.cpp: registers the operators of any kernel library with PyTorch through its C++ API: kernels
// for the CPU and CUDA, fake kernel, autograd and autocast. Compiled on the user's machine, once per PyTorch
// version.
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "accelerator/autocast.h"
#include "accelerator/autograd.h"
#include "accelerator/compiled.h"
#include "accelerator/kernel.h"
#include "accelerator/meta.h"
#include "accelerator/operator.h"
#include "entries.h"

namespace opforge::torch_host {
namespace {

template <class Kernel, class... Arguments>
torch::CppFunction boxed(Arguments... arguments) {
  return torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(arguments...));
}

void define(const opforge_operator* table, const std::string& space, const std::string& name) {
  static std::mutex lock;
  const std::lock_guard<std::mutex> guard(lock);
  auto made = std::make_unique<Operator>(table);
  made->full_name = space + "::" + name;
  if (Operator* known = Registry::instance().named(made->full_name)) {
    return merge(known->plan, made->plan, made->full_name, "PyTorch");
  }
  if (made->plan.signature.inputs.size() > 64) {
    throw failure(OPFORGE_STATUS_UNSUPPORTED, made->plan.key, "too many inputs", "at most 64 parameters",
                  std::to_string(made->plan.signature.inputs.size()));
  }
  if (*table->gradient != '\0') {
    detail::GradientProgram program;
    detail::Problem problem;
    if (!detail::parse_gradient(table->gradient, made->plan.where, &program, &problem) ||
        !detail::check_gradient(program, made->plan.signature, made->plan.where, &problem)) {
      throw failure_of(problem);
    }
    made->gradient = std::move(program);
  }
  // One per operator: PyTorch forgets all that it was told of one whose registration fails.
  auto own = std::make_unique<torch::Library>(torch::Library::FRAGMENT, space, std::nullopt, "opforge", 0);
  torch::Library& library = *own;
  Operator* self = made.get();
  library.def(torch::schema((name + self->plan.schema).c_str()),
              {at::Tag::pt2_compliant_tag, at::Tag::flexible_layout});
  self->handle = c10::Dispatcher::singleton().findSchemaOrThrow(self->full_name.c_str(), "");
  for (const c10::DispatchKey device : kDevices) {
    library.impl(name.c_str(), torch::dispatch(device, boxed<DeviceKernel>(self)));
  }
  if (!self->plan.data_dependent) {
    library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Meta, boxed<MetaKernel>(self)));
  }
  library.impl(name.c_str(), torch::dispatch(c10::DispatchKey::Autograd, boxed<AutogradKernel>(self)));
  const std::string rule = table->autocast;
  if (rule != "none") {
    using Rule = AutocastKernel::Rule;
    const Rule chosen = rule == "f32" ? Rule::kFloat32 : rule == "lower" ? Rule::kLower : Rule::kPromote;
    for (const at::DeviceType device : {at::kCPU, at::kCUDA}) {
      library.impl(name.c_str(),
                   torch::dispatch(at::autocast::get_autocast_dispatch_key_from_device_type(device),
                                   boxed<AutocastKernel>(self, chosen, device)));
    }
  }
  Registry::instance().add(std::move(made));
  static_cast<void>(own.release());  // PyTorch calls into it until the process ends
}

}  // namespace
}  // namespace opforge::torch_host

extern "C" {

OPFORGE_EXPORT int32_t opforge_torch_open(const char*, char*, size_t) { return OPFORGE_STATUS_OK; }

// Registers one operator of a table as torch.ops.<space>.<name>. Doing it again changes nothing.
OPFORGE_EXPORT int32_t opforge_torch_define(const opforge_operator* table, const char* space,
                                            const char* name, char* error, size_t size) {
  return opforge::adapter::guarded(error, size, [&] {
    try {
      opforge::torch_host::define(table, space, name);
    } catch (const c10::Error& problem) {
      throw opforge::adapter::Failure(OPFORGE_STATUS_UNSUPPORTED, problem.what_without_backtrace());
    }
  });
}

}  // extern "C"
