// faults.h: tells which kernel of a library ended the process, or does not return, where somebody asked for
// it.
#pragma once

#include <cstdint>
#include <string>

#include "opforge/abi.h"

namespace opforge::session {

// What is told of a kernel. It lives as long as the process: memory that a kernel spoilt often ends the
// process later, when the session is gone.
struct KernelNames {
  std::string op;      // domain::Name
  std::string name;    // Name
  std::string output;  // of the node that was prepared last
  std::string library;
};
// `function`: any of the library that the kernel is in.
const KernelNames* lasting_names(const std::string& domain, const std::string& name,
                                 const std::string& output, const void* function);

// One call of a kernel.
struct KernelCall {
  const KernelNames* names = nullptr;
  const opforge_arguments *inputs = nullptr, *outputs = nullptr;
  unsigned long number = 0;  // set by the first InKernel
};

// From here on the calling thread works for a call, until this ends; nothing is done where nobody asked.
class InKernel {
 public:
  explicit InKernel(KernelCall* call);
  ~InKernel();
  InKernel(const InKernel&) = delete;
  InKernel& operator=(const InKernel&) = delete;

 private:
  const KernelCall* before_ = nullptr;
  bool noted_;
};

void report_faults();
// What the process does apart from kernels of sessions; null = nothing.
void report_faults_of(const char* what);
// Where OPFORGE_REPORT_FAULTS is 1.
void report_faults_if_asked();

}  // namespace opforge::session
