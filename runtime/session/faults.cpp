// faults.cpp: handlers of signals that tell which kernel was running. They call what is safe in a handler
// only: nothing that allocates, locks or formats. Which call a thread is in lies under a key of POSIX
// threads: reading one never allocates, as reading a thread_local of a library that was opened later may.
#include "session/faults.h"

#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>

#include "opforge/runtime.h"
#include "program/program.h"

namespace opforge::session {
namespace {

struct Fault {
  int number;
  const char* name;
  bool late;  // also a sign of memory that was spoilt before
};
constexpr Fault kFaults[] = {{SIGSEGV, "SIGSEGV", true},
                             {SIGBUS, "SIGBUS", true},
                             {SIGABRT, "SIGABRT", true},
                             {SIGFPE, "SIGFPE", false},
                             {SIGILL, "SIGILL", false}};
constexpr size_t kCount = sizeof kFaults / sizeof kFaults[0];
constexpr int kNoAddress = 0x80;   // SI_KERNEL: an address that no memory can have
constexpr int kInterrupted = 130;  // the exit status of a program that Ctrl-C ended
constexpr size_t kStack = size_t{1} << 16;
constexpr int32_t kTold = 8;  // tensors

// What a command shows while it works is taken off a terminal, whose cursor may be hidden.
constexpr const char* kCleared = "\r\x1b[K\x1b[?25h";

std::atomic<bool> reporting{false};
bool terminal = false;
pthread_key_t running;  // const KernelCall* of a thread
std::atomic<const KernelNames*> last{nullptr};
std::atomic<unsigned long> calls{0}, interrupted{0};
struct sigaction before[kCount], before_interrupt;
char doing[256];                 // "" = nothing
alignas(16) char stack[kStack];  // for a thread that has used up its own

const KernelCall* current() { return static_cast<const KernelCall*>(::pthread_getspecific(running)); }

// A line, written at once.
class Line {
 public:
  Line& operator<<(const char* text) {
    while (*text != '\0' && used_ + 1 < sizeof text_) text_[used_++] = *text++;
    return *this;
  }
  Line& operator<<(const std::string& text) { return *this << text.c_str(); }
  Line& number(uint64_t value, unsigned base = 10) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = '\0';
    do {
      digits[--at] = "0123456789abcdef"[value % base];
      value /= base;
    } while (value != 0);
    return *this << &digits[at];
  }
  Line& tensors(const opforge_arguments& list) {
    for (int32_t k = 0; k < list.n_tensors && k < kTold; ++k) {
      const opforge_tensor& tensor = list.tensors[k];
      *this << (k != 0 ? ", " : " ") << dtype_name(from_dlpack(tensor.dtype)) << "[";
      for (int32_t d = 0; d < tensor.ndim; ++d)
        (*this << (d != 0 ? ", " : "")).number(static_cast<uint64_t>(tensor.shape[d]));
      *this << "]";
    }
    return *this << (list.n_tensors > kTold ? ", ..." : "");
  }
  ~Line() {
    text_[used_++] = '\n';
    for (size_t at = 0; at < used_;) {
      const ssize_t written = ::write(STDERR_FILENO, text_ + at, used_ - at);
      if (written <= 0) return;
      at += static_cast<size_t>(written);
    }
  }

 private:
  char text_[2048];
  size_t used_ = 0;
};

void tell_how_to_find(const KernelNames& names) {
  Line() << "  to do: opforge check PACKAGE:" << names.name << " --sanitize address names the line";
}

void tell_signal(Line& line, const Fault& fault, const siginfo_t& info) {
  line << "  got: " << fault.name;
  if (fault.number != SIGABRT && info.si_code > 0 && info.si_code != kNoAddress)
    (line << " at address 0x").number(reinterpret_cast<uintptr_t>(info.si_addr), 16);
}

// A kernel may have spoilt anything, so what surely stands comes first.
void tell(const Fault& fault, const siginfo_t& info) {
  const KernelCall* call = current();
  if (call == nullptr && doing[0] != '\0') {
    Line() << (terminal ? kCleared : "") << "error: " << doing << ": the process ends by it";
    {
      Line line;
      tell_signal(line, fault, info);
    }
    const KernelNames* ran = last.load(std::memory_order_relaxed);
    if (ran == nullptr || !fault.late) return;
    Line() << "  or: the kernel of " << ran->op << ", which ran before, spoilt memory";
    return tell_how_to_find(*ran);
  }
  const KernelNames* names = call != nullptr ? call->names : last.load(std::memory_order_relaxed);
  const bool sent = info.si_code <= 0 && info.si_pid != ::getpid();
  if (names == nullptr || (call == nullptr && (sent || !fault.late))) return;
  {
    Line line;
    line << (terminal ? kCleared : "") << "error: " << names->op;
    if (call == nullptr) {
      line << ": the process ends after its kernel has run, perhaps by memory that it spoilt";
    } else {
      line << " (output '" << names->output
           << "'): " << (sent ? "the process is ended while the kernel runs" : "the kernel ends the process");
    }
  }
  if (call != nullptr) Line() << "  expected: a kernel that stays inside its tensors, and throws nothing";
  {
    Line line;
    tell_signal(line, fault, info);
    line << " in the kernel of " << names->library;
    if (call == nullptr) line << ", or in what ran after it";
  }
  tell_how_to_find(*names);
  if (call == nullptr) return;
  (Line() << "  inputs:").tensors(*call->inputs);
  (Line() << "  outputs:").tensors(*call->outputs);
}

void on_fault(int number, siginfo_t* info, void*) {
  const int kept = errno;
  static std::atomic<int32_t> told{0};  // a word: riscv64 exchanges no bytes without a library
  for (size_t k = 0; k < kCount; ++k) {
    if (kFaults[k].number != number) continue;
    if (told.exchange(1) == 0) tell(kFaults[k], *info);
    ::sigaction(number, &before[k], nullptr);
  }
  // What the processor found comes again by itself; what was sent has to be sent again, to come when this
  // returns.
  if (info->si_code <= 0 || number == SIGABRT) ::raise(number);
  errno = kept;
}

// Python's handler takes note and waits for the call to return.
void on_interrupt(int number, siginfo_t* info, void* context) {
  const KernelCall* call = current();
  if (call != nullptr && interrupted.exchange(call->number) == call->number) {
    Line() << (terminal ? kCleared : "") << "error: " << call->names->op << " (output '"
           << call->names->output << "'): interrupted, and the kernel does not return";
    (Line() << "  inputs:").tensors(*call->inputs);
    ::_exit(kInterrupted);
  }
  if ((before_interrupt.sa_flags & SA_SIGINFO) != 0)
    before_interrupt.sa_sigaction(number, info, context);
  else
    before_interrupt.sa_handler(number);
}

using Action = void (*)(int, siginfo_t*, void*);
void handle(int number, Action action, struct sigaction* old) {
  struct sigaction ours = {};
  ours.sa_sigaction = action;
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(number, &ours, old);
}

bool install() {
  if (::pthread_key_create(&running, nullptr) != 0) return false;
  terminal = ::isatty(STDERR_FILENO) == 1;
  stack_t alternate = {};
  if (::sigaltstack(nullptr, &alternate) == 0 && (alternate.ss_flags & SS_DISABLE) != 0) {
    alternate.ss_sp = stack;
    alternate.ss_size = kStack;
    alternate.ss_flags = 0;
    ::sigaltstack(&alternate, nullptr);
  }
  for (size_t k = 0; k < kCount; ++k) handle(kFaults[k].number, on_fault, &before[k]);
  // Where an interrupt ends the process at once there is nothing to wait for.
  const bool kept = ::sigaction(SIGINT, nullptr, &before_interrupt) == 0;
  const bool has_action = (before_interrupt.sa_flags & SA_SIGINFO) != 0 ||
                          (before_interrupt.sa_handler != SIG_DFL && before_interrupt.sa_handler != SIG_IGN);
  if (kept && has_action) handle(SIGINT, on_interrupt, &before_interrupt);
  reporting.store(true, std::memory_order_release);
  return true;
}

}  // namespace

const KernelNames* lasting_names(const std::string& domain, const std::string& name,
                                 const std::string& output, const void* function) {
  if (!reporting.load(std::memory_order_acquire)) return nullptr;
  static std::mutex mutex;
  static auto* const known = new std::map<std::pair<std::string, const void*>, KernelNames>();
  const std::string op = domain + "::" + name;
  std::lock_guard<std::mutex> lock(mutex);
  const auto [found, fresh] = known->try_emplace({op + "\n" + output, function});
  if (fresh) {
    Dl_info info = {};
    const bool placed = ::dladdr(function, &info) != 0 && info.dli_fname != nullptr;
    found->second = {op, name, output, placed ? info.dli_fname : "an unknown library"};
  }
  return &found->second;
}

InKernel::InKernel(KernelCall* call) : noted_(call->names != nullptr) {
  if (!noted_) return;
  if (call->number == 0) call->number = calls.fetch_add(1, std::memory_order_relaxed) + 1;
  before_ = current();
  ::pthread_setspecific(running, call);
  last.store(call->names, std::memory_order_relaxed);
}
InKernel::~InKernel() {
  if (noted_) ::pthread_setspecific(running, before_);
}

void report_faults() {
  static const bool installed = install();
  static_cast<void>(installed);
}

void report_faults_of(const char* what) {
  report_faults();
  std::snprintf(doing, sizeof doing, "%s", what != nullptr ? what : "");
}

void report_faults_if_asked() {
  static const bool asked = [] {
    const char* value = std::getenv("OPFORGE_REPORT_FAULTS");
    return value != nullptr && std::strcmp(value, "1") == 0;
  }();
  if (asked) report_faults();
}

}  // namespace opforge::session

void opforge_report_faults(void) { opforge::session::report_faults(); }
void opforge_report_faults_of(const char* what) { opforge::session::report_faults_of(what); }
