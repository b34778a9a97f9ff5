// Runs a command and writes the system calls of its first process: usage: trace FILE COMMAND [ARGUMENT...]
// One line for each call: its number, and the path for those that take one. Exits like the command.
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

static unsigned long long path_argument(const struct user_regs_struct* registers) {
  switch (registers->orig_rax) {
    case SYS_open:
    case SYS_stat:
    case SYS_lstat:
    case SYS_access:
    case SYS_readlink:
      return registers->rdi;
    case SYS_openat:
    case SYS_newfstatat:
    case SYS_faccessat:
    case SYS_readlinkat:
      return registers->rsi;
    default:
      return 0;
  }
}

static void print_text(FILE* out, pid_t child, unsigned long long address) {
  fputc(' ', out);
  for (;; address += sizeof(long)) {
    errno = 0;
    const long word = ptrace(PTRACE_PEEKDATA, child, (void*)address, NULL);
    if (errno != 0) return;
    for (size_t i = 0; i < sizeof word; ++i) {
      const char c = ((const char*)&word)[i];
      if (c == '\0') return;
      fputc(c, out);
    }
  }
}

int main(int argc, char** argv) {
  if (argc < 3) return 125;
  FILE* out = fopen(argv[1], "w");
  if (out == NULL) return 125;
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0) _exit(126);
    raise(SIGSTOP);
    personality(ADDR_NO_RANDOMIZE);  // the heap grows alike in every run
    // What is preloaded is for the command, not for this program. Without it the environment is as large all the same.
    const char* preload = getenv("TRACE_PRELOAD");
    const char* idle = getenv("TRACE_IDLE");
    if (preload != NULL) setenv("LD_PRELOAD", preload, 1);
    if (idle != NULL) setenv("LD_PRELOAX", idle, 1);
    unsetenv("TRACE_PRELOAD");
    unsetenv("TRACE_IDLE");
    execvp(argv[2], argv + 2);
    _exit(127);
  }
  int status = 0, entering = 1, started = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return WEXITSTATUS(status);
  ptrace(PTRACE_SETOPTIONS, child, NULL, (void*)(long)(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACEEXEC));
  ptrace(PTRACE_SYSCALL, child, NULL, NULL);
  while (waitpid(child, &status, 0) == child && !WIFEXITED(status) && !WIFSIGNALED(status)) {
    int deliver = 0;
    if (WSTOPSIG(status) == (SIGTRAP | 0x80)) {
      struct user_regs_struct registers;
      if (started && entering && ptrace(PTRACE_GETREGS, child, NULL, &registers) == 0) {
        fprintf(out, "%llu", registers.orig_rax);
        const unsigned long long path = path_argument(&registers);
        if (path != 0) print_text(out, child, path);
        fputc('\n', out);
      }
      entering = !entering;
    } else if (status >> 8 == (SIGTRAP | (PTRACE_EVENT_EXEC << 8))) {
      started = 1;
      entering = 0;  // the end of execve comes next
    } else if (WSTOPSIG(status) != SIGTRAP) {
      deliver = WSTOPSIG(status);
    }
    ptrace(PTRACE_SYSCALL, child, NULL, (void*)(long)deliver);
  }
  fclose(out);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
