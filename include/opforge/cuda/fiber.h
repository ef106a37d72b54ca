// fiber.h: switching between stacks, for the emulator's threads.
#pragma once

// Saves the callee-saved registers on the stack, puts the stack pointer into *save and goes on with the stack
// `to`.
extern "C" void opforge_cuda_switch(void** save, void* to);

#if defined(__x86_64__)
asm(R"(
.text
.globl opforge_cuda_switch
.hidden opforge_cuda_switch
.type opforge_cuda_switch, @function
opforge_cuda_switch:
  push %rbp
  push %rbx
  push %r12
  push %r13
  push %r14
  push %r15
  mov %rsp, (%rdi)
  mov %rsi, %rsp
  pop %r15
  pop %r14
  pop %r13
  pop %r12
  pop %rbx
  pop %rbp
  ret
.size opforge_cuda_switch, . - opforge_cuda_switch
)");
#elif defined(__aarch64__)
asm(R"(
.text
.globl opforge_cuda_switch
.hidden opforge_cuda_switch
.type opforge_cuda_switch, %function
opforge_cuda_switch:
  stp x19, x20, [sp, #-160]!
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  ldp x19, x20, [sp], #160
  ret
.size opforge_cuda_switch, . - opforge_cuda_switch
)");
#else
#error "the emulator of CUDA runs on x86-64 and aarch64"
#endif

namespace opforge::cuda {

// Prepares a stack so that the first switch to it calls `entry`, which never returns.
inline void* first_frame(char* stack, size_t size, void (*entry)()) {
  void** top = reinterpret_cast<void**>(stack + size - 64);
#if defined(__x86_64__)
  *--top = nullptr;  // a return address for the entry, and the alignment that a call leaves
  *--top = reinterpret_cast<void*>(entry);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
#else
  for (int k = 0; k < 20; ++k) *--top = nullptr;
  top[11] = reinterpret_cast<void*>(entry);  // x30
#endif
  return top;
}

}  // namespace opforge::cuda
