/* Preloaded into a test process: ends it like `kill -9` before or after the n-th write, sync or rename of a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

static long remaining = -1;
static long passed = 0;

void failpoints_arm(long n) { remaining = n; passed = 0; }
long failpoints_passed(void) { return passed; }

void failpoint(void) {
    if (remaining < 0) return;
    __atomic_add_fetch(&passed, 1, __ATOMIC_SEQ_CST);
    if (__atomic_fetch_sub(&remaining, 1, __ATOMIC_SEQ_CST) == 0) _exit(77);
}

#define AROUND(result, name, parameters, arguments)                     \
    result name parameters {                                            \
        static result (*real) parameters;                               \
        if (!real) real = dlsym(RTLD_NEXT, #name);                      \
        failpoint();                                                    \
        result answer = real arguments;                                 \
        failpoint();                                                    \
        return answer;                                                  \
    }

AROUND(int, fsync, (int fd), (fd))
AROUND(int, fdatasync, (int fd), (fd))
AROUND(int, ftruncate64, (int fd, off64_t size), (fd, size))
AROUND(ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), (fd, data, size, at))
AROUND(int, unlink, (const char *path), (path))
AROUND(ssize_t, write, (int fd, const void *data, size_t size), (fd, data, size))
AROUND(int, rename, (const char *from, const char *to), (from, to))
